"""Queries over the configurations of custom agents, each stored once by its content."""

from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select, tuple_
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from brain.registry.manifest import AgentPin
from starling.core.agents import LLMAgentConfig
from starling.infra.postgres.engine import translated
from starling.infra.postgres.tables import agents


@dataclass(frozen=True, slots=True)
class AgentVersion:
    """A configuration that an agent has or had; an older one that is taken up again keeps its date."""

    hash: str
    config: LLMAgentConfig
    created_at: datetime


class AgentRepository:
    """Custom agents in Postgres. Configurations are never removed: epochs pin them."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    @asynccontextmanager
    async def changing(self) -> AsyncGenerator[AsyncConnection]:
        """Give the transaction of a change; it is committed where the block ends well."""
        with translated():
            async with self._engine.begin() as connection:
                yield connection

    async def save(self, connection: AsyncConnection, tenant: str, config: LLMAgentConfig) -> None:
        """Store a configuration, as part of the connection's transaction."""
        values = {"name": config.id, "hash": config.hash, "config": config.model_dump(mode="json")}
        await connection.execute(insert(agents).values(tenant=tenant, **values).on_conflict_do_nothing())

    async def versions(self, tenant: str, name: str) -> Sequence[AgentVersion]:
        """Return every version of an agent, oldest first."""
        query = select(agents.c.hash, agents.c.config, agents.c.created_at)
        query = query.where(agents.c.tenant == tenant, agents.c.name == name).order_by(agents.c.created_at)
        with translated():
            async with self._engine.connect() as connection:
                found = await connection.execute(query)
                return [
                    AgentVersion(row.hash, LLMAgentConfig.model_validate(row.config, extra="ignore"), row.created_at)
                    for row in found
                ]

    async def pinned(self, pins: Iterable[AgentPin]) -> Mapping[AgentPin, LLMAgentConfig]:
        """Return the configurations of agents of any tenants."""
        wanted = {(pin.tenant, pin.name, pin.hash): pin for pin in pins}
        key = agents.c.tenant, agents.c.name, agents.c.hash
        query = select(*key, agents.c.config).where(tuple_(*key).in_(wanted))
        with translated():
            async with self._engine.connect() as connection:
                found = await connection.execute(query)
                return {
                    wanted[row.tenant, row.name, row.hash]: LLMAgentConfig.model_validate(row.config, extra="ignore")
                    for row in found
                }

    async def configs(self, tenant: str, hashes: Collection[str]) -> Mapping[str, LLMAgentConfig]:
        """Return configurations by hash."""
        query = select(agents.c.hash, agents.c.config).where(agents.c.tenant == tenant, agents.c.hash.in_(hashes))
        with translated():
            async with self._engine.connect() as connection:
                found = await connection.execute(query)
                return {row.hash: LLMAgentConfig.model_validate(row.config, extra="ignore") for row in found}
