"""Queries over epochs and the tool definitions that they pin."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import func, insert, select, text, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from brain.registry.manifest import Epoch, Manifest
from starling.core.errors import NotFoundError
from starling.core.principal import SHARED
from starling.infra.postgres.engine import translated
from starling.infra.postgres.tables import epochs, tools

_ONE_AT_A_TIME = text("SELECT pg_advisory_xact_lock(hashtext('starling.epochs'))")


class EpochRepository:
    """Epochs in Postgres."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def publish(self, manifest: Manifest) -> Epoch:
        """Make `manifest` the active epoch; keep the active one where it says the same already."""
        with translated():
            async with self._engine.begin() as connection:
                await connection.execute(_ONE_AT_A_TIME)
                active = await _active(connection)
                if active and active.manifest.hash == manifest.hash:
                    return active
                highest = await connection.scalar(
                    select(func.coalesce(func.max(epochs.c.number), 0)).where(epochs.c.tenant == SHARED)
                )
                await connection.execute(update(epochs).where(epochs.c.tenant == SHARED).values(active=False))
                epoch = Epoch((highest or 0) + 1, manifest)
                await connection.execute(
                    insert(epochs).values(
                        tenant=SHARED,
                        number=epoch.number,
                        hash=manifest.hash,
                        manifest=manifest.model_dump(mode="json"),
                        active=True,
                    )
                )
                return epoch

    async def active_number(self) -> int | None:
        """Return the number of the active epoch, None before the first."""
        query = select(epochs.c.number).where(epochs.c.tenant == SHARED, epochs.c.active)
        with translated():
            async with self._engine.connect() as connection:
                return await connection.scalar(query)

    async def get(self, number: int) -> Epoch:
        """Return the epoch of a number. Raises NotFoundError."""
        query = select(epochs.c.manifest).where(epochs.c.tenant == SHARED, epochs.c.number == number)
        with translated():
            async with self._engine.connect() as connection:
                manifest = await connection.scalar(query)
        if manifest is None:
            raise NotFoundError("epoch", str(number), "Start the platform with its servers once, so that it makes one.")
        return Epoch(number, Manifest.model_validate(manifest))

    async def definitions(self, manifest: Manifest) -> Mapping[tuple[str, str], Mapping[str, Any]]:
        """Return the pinned definition of each tool, by server and name."""
        pins = [
            (SHARED, server, name, pin.hash)
            for server, entry in manifest.servers.items()
            for name, pin in entry.tools.items()
        ]
        if not pins:
            return {}
        key = tuple_(tools.c.tenant, tools.c.server, tools.c.name, tools.c.hash)
        query = select(tools.c.server, tools.c.name, tools.c.definition).where(key.in_(pins))
        with translated():
            async with self._engine.connect() as connection:
                return {(row.server, row.name): row.definition for row in await connection.execute(query)}


async def _active(connection: AsyncConnection) -> Epoch | None:
    query = select(epochs.c.number, epochs.c.manifest).where(epochs.c.tenant == SHARED, epochs.c.active)
    row = (await connection.execute(query)).one_or_none()
    return None if row is None else Epoch(row.number, Manifest.model_validate(row.manifest))
