"""An embedder that keeps vectors in Postgres."""

import logging
from array import array
from collections.abc import Sequence

import numpy as np

from starling.core.embeddings import CachingEmbedder, Embedder, Vector
from starling.core.errors import DatabaseUnavailableError
from starling.core.json import digest
from starling.infra.postgres.embeddings import EmbeddingRepository

_log = logging.getLogger(__name__)


class PostgresCachingEmbedder(CachingEmbedder):
    """Embeds only texts whose vectors aren't stored. While Postgres is away, all texts are embedded and none stored."""

    def __init__(self, embedder: Embedder, repository: EmbeddingRepository) -> None:
        self._embedder = embedder
        self._repository = repository

    @property
    def name(self) -> str:
        return self._embedder.name

    @property
    def dimensions(self) -> int:
        return self._embedder.dimensions

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        return await self._embedder.embed(texts)

    async def close(self) -> None:
        await self._embedder.close()

    async def embed_and_keep(self, tenant: str, texts: Sequence[str]) -> list[Vector]:
        hashes = {text: digest(text) for text in texts}
        known = await self._known(tenant, list(hashes.values()))
        missing = [text for text, key in hashes.items() if key not in known]
        if missing:
            made = dict(zip(missing, await self._embedder.embed(missing), strict=True))
            await self._keep(tenant, {hashes[text]: vector for text, vector in made.items()})
            known |= {hashes[text]: vector for text, vector in made.items()}
        return [known[hashes[text]] for text in texts]

    async def _known(self, tenant: str, hashes: Sequence[str]) -> dict[str, Vector]:
        try:
            found = await self._repository.get(tenant, self.name, hashes)
        except DatabaseUnavailableError as error:
            _log.warning("stored vectors can't be read: %s", error)
            return {}
        return {key: _unpacked(data) for key, data in found.items()}

    async def _keep(self, tenant: str, vectors: dict[str, Vector]) -> None:
        try:
            await self._repository.put(tenant, self.name, {key: _packed(vector) for key, vector in vectors.items()})
        except DatabaseUnavailableError as error:
            _log.warning("vectors can't be stored: %s", error)


def _packed(vector: Vector) -> bytes:
    return np.asarray(vector, dtype=np.float32).astype("<f2").tobytes()


def _unpacked(data: bytes) -> Vector:
    return array("f", np.frombuffer(data, dtype="<f2").astype(np.float32).tobytes())
