"""Queries over the stars of teams, each stored once by its content."""

from collections.abc import Collection, Mapping

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.core.stars import StarSpec
from starling.infra.postgres.engine import translated
from starling.infra.postgres.tables import stars


class StarRepository:
    """Stars in Postgres. They are never removed: epochs pin them."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def stars(self, tenant: str, hashes: Collection[str]) -> Mapping[str, StarSpec]:
        """Return the stars of a tenant by hash."""
        query = select(stars.c.hash, stars.c.star).where(stars.c.tenant == tenant, stars.c.hash.in_(hashes))
        with translated():
            async with self._engine.connect() as connection:
                found = await connection.execute(query)
                return {row.hash: StarSpec.model_validate(row.star) for row in found}
