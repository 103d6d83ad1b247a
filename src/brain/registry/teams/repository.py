"""Queries over the stars of teams, each stored once by its content."""

from collections.abc import Collection, Mapping

from sqlalchemy import select, tuple_
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from starling.core.teams.stars import StarSpec
from starling.infra.postgres.engine import translated
from starling.infra.postgres.tables import stars


class StarRepository:
    """Stars in Postgres. They are never changed or removed: epochs pin them."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def save(self, connection: AsyncConnection, tenant: str, star: StarSpec) -> None:
        """Store a star, as part of the connection's transaction."""
        values = {"tenant": tenant, "hash": star.hash, "star": star.model_dump(mode="json")}
        await connection.execute(insert(stars).values(**values).on_conflict_do_nothing())

    async def stars(self, tenant: str, hashes: Collection[str]) -> Mapping[str, StarSpec]:
        """Return the stars of a tenant by hash."""
        with translated():
            async with self._engine.connect() as connection:
                return await self.within(connection, tenant, hashes)

    async def within(self, connection: AsyncConnection, tenant: str, hashes: Collection[str]) -> Mapping[str, StarSpec]:
        """Return the stars of a tenant by hash, read in a transaction."""
        query = select(stars.c.hash, stars.c.star).where(stars.c.tenant == tenant, stars.c.hash.in_(hashes))
        return {row.hash: StarSpec.model_validate(row.star) for row in await connection.execute(query)}

    async def pinned(self, pins: Collection[tuple[str, str]]) -> Mapping[tuple[str, str], StarSpec]:
        """Return stars of any tenants, by tenant and hash."""
        key = stars.c.tenant, stars.c.hash
        query = select(*key, stars.c.star).where(tuple_(*key).in_(pins))
        with translated():
            async with self._engine.connect() as connection:
                found = await connection.execute(query)
                return {(row.tenant, row.hash): StarSpec.model_validate(row.star) for row in found}
