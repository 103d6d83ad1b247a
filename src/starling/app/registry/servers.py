"""Adding, removing and trying out MCP servers beside a platform that runs, or without one."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from brain.registry.repository import EpochRepository
from mcp_gateway.catalog import Trial
from mcp_gateway.config import ServerConfig
from mcp_gateway.gateway import Gateway, open_gateway
from starling.app.registry.service import RegistryService
from starling.app.runs.records import open_records
from starling.core.settings import Settings, environment
from starling.core.tools import ServerListing
from starling.infra.postgres.audit import Actor


@dataclass(frozen=True, slots=True)
class Servers:
    """Changes to the servers, each published as a new epoch: new runs know them."""

    gateway: Gateway
    registry: RegistryService
    actor: Actor

    async def add(self, name: str, config: ServerConfig) -> tuple[ServerListing, int]:
        """Add a server; return it as listed, and the epoch. Raises ConfigurationError, ServerUnavailableError."""
        applied = await self.registry.add(name, config, self.actor)
        return next(listing for listing in await self.gateway.refresh() if listing.name == name), applied.epoch

    async def remove(self, name: str) -> int:
        """Remove a server; return the epoch. Raises NotFoundError."""
        return (await self.registry.remove(name, self.actor)).epoch

    async def try_out(self, name: str) -> Trial:
        """Start and list a server again, changing nothing. Raises NotFoundError, ServerUnavailableError."""
        return await self.gateway.try_out(name)


@asynccontextmanager
async def open_servers(settings: Settings) -> AsyncGenerator[Servers]:
    """Connect to the database that there is, with a gateway of our own for as long as the context lasts."""
    async with (
        open_records(settings) as records,
        open_gateway(records.servers, settings.limits, environment()) as gateway,
    ):
        registry = RegistryService(records.engine, EpochRepository(records.engine), settings.limits)
        yield Servers(gateway, registry, Actor.local("cli"))
