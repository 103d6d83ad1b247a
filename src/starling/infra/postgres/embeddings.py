"""Vectors of texts in Postgres, so that a text is embedded once."""

from collections.abc import Mapping, Sequence
from typing import Final

from starling.infra.postgres.engine import Repository, execute_autocommit, fetch_autocommit

_GET: Final = """
SELECT hash, vector FROM embeddings
WHERE tenant = %(tenant)s AND model = %(model)s AND hash = ANY(%(hashes)s)"""
_PUT: Final = """
WITH stored AS (
    INSERT INTO embeddings (tenant, model, hash, vector)
    SELECT %(tenant)s, %(model)s, item.* FROM unnest(%(hashes)s::text[], %(vectors)s::bytea[]) AS item
    ON CONFLICT DO NOTHING RETURNING 1)
SELECT count(*) FROM stored"""
_OTHER_MODELS: Final = """
SELECT model FROM embeddings
WHERE model <> %(model)s AND (tenant, hash) IN (SELECT * FROM unnest(%(tenants)s::text[], %(hashes)s::text[]))
GROUP BY model HAVING count(*) = %(count)s ORDER BY max(created_at) DESC, model"""


class EmbeddingRepository(Repository):
    """Reads and stores vectors, as the bytes of 16-bit floats, by tenant, model and the hash of the text."""

    async def get(self, tenant: str, model: str, hashes: Sequence[str]) -> Mapping[str, bytes]:
        """Return the known vectors by hash. Raises DatabaseUnavailableError."""
        rows = await fetch_autocommit(self._engine, _GET, {"tenant": tenant, "model": model, "hashes": list(hashes)})
        return {str(key): bytes(vector) for key, vector in rows}

    async def put(self, tenant: str, model: str, vectors: Mapping[str, bytes]) -> None:
        """Store vectors by hash; known ones stay. Raises DatabaseUnavailableError."""
        values = {"tenant": tenant, "model": model, "hashes": list(vectors), "vectors": list(vectors.values())}
        await execute_autocommit(self._engine, _PUT, values)

    async def other_models(self, model: str, keys: Sequence[tuple[str, str]]) -> Sequence[str]:
        """Return the other models that have vectors of all `keys`, tenants and hashes; that of the newest vector first.

        Raises DatabaseUnavailableError.
        """
        wanted = sorted(set(keys))
        values = {"model": model, "count": len(wanted)}
        values |= {"tenants": [tenant for tenant, _ in wanted], "hashes": [key for _, key in wanted]}
        return [str(name) for (name,) in await fetch_autocommit(self._engine, _OTHER_MODELS, values)]
