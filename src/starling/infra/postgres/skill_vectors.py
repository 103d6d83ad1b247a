"""Upkeep of the vectors of skills: their index for each model, and those that another model made."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, NamedTuple

from pgvector import HalfVector
from psycopg import AsyncConnection
from psycopg.sql import SQL, Composed, Identifier, Literal

from starling.core.embeddings import Vector
from starling.infra.postgres.engine import ConnectionLimits, connected

_MOST_DIMENSIONS: Final = 4_000  # that pgvector indexes
_PREFIX: Final = "skills_large_"
_TOOLS: Final = f"{_PREFIX}tools"
_BUILD_SECONDS: Final = 6 * 3_600.0
_SESSION: Final = ConnectionLimits(statement_seconds=_BUILD_SECONDS, lock_seconds=_BUILD_SECONDS)
_LOCK: Final = "SELECT pg_try_advisory_lock(hashtext('starling.skills'))"
_MEMORY: Final = "SET maintenance_work_mem = '256MB'"  # a graph of vectors that doesn't fit is built many times slower
_OUTDATED: Final = """
SELECT tenant, id::text, task FROM skills
WHERE (tenant, id) > (%(tenant)s, %(id)s::uuid)
    AND (model IS DISTINCT FROM %(model)s OR vector_dims(embedding) IS DISTINCT FROM %(dimensions)s)
ORDER BY tenant, id LIMIT %(limit)s"""
_STORE: Final = """
WITH found AS MATERIALIZED (
    SELECT skills.tenant, skills.id, item.vector
    FROM unnest(%(tenants)s::text[], %(ids)s::uuid[], %(vectors)s::text[]) AS item (tenant, id, vector), skills
    WHERE skills.tenant = item.tenant AND skills.id = item.id
    ORDER BY skills.tenant, skills.id FOR UPDATE OF skills)
UPDATE skills SET model = %(model)s, embedding = found.vector::halfvec
FROM found WHERE skills.tenant = found.tenant AND skills.id = found.id"""
_LEADING: Final = """
SELECT model FROM skills WHERE model IS NOT NULL GROUP BY model ORDER BY count(*) DESC, model LIMIT 1"""
_IS_LARGE: Final = """
SELECT EXISTS (
    SELECT FROM skills WHERE model = %(model)s AND vector_dims(embedding) = %(dimensions)s
    GROUP BY tenant HAVING count(*) > %(rows)s)"""
# Tells which skills of a large store need only the tools of an agent. Not made earlier: it makes each write slower.
_TOOLS_INDEX: Final = "CREATE INDEX CONCURRENTLY skills_large_tools ON skills USING gin (tools)"
_INDEXES: Final = """
SELECT name.relname, part.indisvalid
FROM pg_index AS part JOIN pg_class AS name ON name.oid = part.indexrelid
WHERE part.indrelid = 'skills'::regclass AND starts_with(name.relname, %(prefix)s)"""


class OutdatedSkill(NamedTuple):
    """A skill whose vector isn't of the configured model, with the text that its vector is of."""

    tenant: str
    id: str
    task: str


FIRST: Final = OutdatedSkill("", "00000000-0000-0000-0000-000000000000", "")


def index_condition(model: str, dimensions: int) -> Composed:
    """Return the condition of a model's index. A query that is to use it has to have the same text."""
    return SQL("model = {} AND vector_dims(embedding) = {}").format(Literal(model), Literal(dimensions))


@dataclass(frozen=True, slots=True)
class SkillVectors:
    """The vectors of all tenants' skills, for the one process at a time that keeps them."""

    connection: AsyncConnection[Any]

    async def outdated(self, model: str, dimensions: int, after: OutdatedSkill, limit: int) -> list[OutdatedSkill]:
        """Return the next skills after `after` without a vector of this model and length."""
        values = {"model": model, "dimensions": dimensions, "tenant": after.tenant, "id": after.id, "limit": limit}
        return [OutdatedSkill(*row) for row in await self._rows(_OUTDATED, values)]

    async def store(self, model: str, skills: Sequence[OutdatedSkill], vectors: Sequence[Vector]) -> None:
        """Store the vectors of skills; those that were deleted meanwhile are left out."""
        values = {
            "model": model,
            "tenants": [skill.tenant for skill in skills],
            "ids": [skill.id for skill in skills],
            "vectors": [HalfVector(list(vector)).to_text() for vector in vectors],
        }
        await self.connection.execute(_STORE, values)

    async def leading_model(self) -> str | None:
        """Return the model of most vectors, None without any."""
        rows = await self._rows(_LEADING, {})
        return str(rows[0][0]) if rows else None

    async def is_large(self, model: str, dimensions: int, rows: int) -> bool:
        """Return whether a tenant has more than `rows` vectors of a model."""
        values = {"model": model, "dimensions": dimensions, "rows": rows}
        return bool((await self._rows(_IS_LARGE, values))[0][0])

    async def build_indexes(self, model: str, dimensions: int) -> bool:
        """Build the indexes of a large store, and return whether any was missing; reads and writes go on meanwhile.

        A build that was interrupted is done again. A model with more dimensions than can be indexed has no index.
        """
        present = await self._indexes()
        missing = {_TOOLS: SQL(_TOOLS_INDEX), _index_name(model, dimensions): _vector_index(model, dimensions)}
        missing = {name: statement for name, statement in missing.items() if statement and not present.get(name)}
        for name, statement in missing.items():
            await self._drop(name)
            await self.connection.execute(_MEMORY)
            await self.connection.execute(statement)
        if missing:
            await self.connection.execute("ANALYZE skills")
        return bool(missing)

    async def drop_other_indexes(self, model: str, dimensions: int) -> None:
        """Drop the indexes of other models, and what an interrupted build left."""
        kept = (_TOOLS, _index_name(model, dimensions))
        for name, is_valid in (await self._indexes()).items():
            if name not in kept or not is_valid:
                await self._drop(name)

    async def _indexes(self) -> dict[str, bool]:
        """Return the indexes over vectors by name, and whether each is complete."""
        return {str(name): bool(is_valid) for name, is_valid in await self._rows(_INDEXES, {"prefix": _PREFIX})}

    async def _drop(self, name: str) -> None:
        await self.connection.execute(SQL("DROP INDEX CONCURRENTLY IF EXISTS {}").format(Identifier(name)))

    async def _rows(self, query: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        return await (await self.connection.execute(query.encode(), values)).fetchall()


@asynccontextmanager
async def open_skill_vectors(direct_url: str) -> AsyncGenerator[SkillVectors | None]:
    """Yield the vectors on a connection of their own, past any pooler; None while another process has them.

    Raises DatabaseUnavailableError, also for errors of methods that leave the block.
    """
    async with connected(direct_url, _SESSION) as connection:
        row = await (await connection.execute(_LOCK)).fetchone()
        yield SkillVectors(connection) if row and row[0] else None
        await connection.execute("SELECT pg_advisory_unlock_all()")  # the server ends the session some time later


def _vector_index(model: str, dimensions: int) -> Composed | None:
    if dimensions > _MOST_DIMENSIONS:
        return None
    return SQL(
        "CREATE INDEX CONCURRENTLY {} ON skills USING hnsw ((embedding::halfvec({})) halfvec_cosine_ops) WHERE {}"
    ).format(Identifier(_index_name(model, dimensions)), Literal(dimensions), index_condition(model, dimensions))


def _index_name(model: str, dimensions: int) -> str:
    return f"{_PREFIX}{dimensions}_{sha256(model.encode()).hexdigest()[:16]}"
