"""Adding, removing and trying out MCP servers beside a platform that runs, or without one."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from brain.registry.repository import EpochRepository
from brain.registry.service import Registry
from mcp_gateway.catalog import Trial
from mcp_gateway.config import ServerConfig
from mcp_gateway.gateway import Gateway, open_gateway
from starling.app.records import open_records
from starling.core.settings import Settings, environment
from starling.core.tools import ServerListing


@dataclass(frozen=True, slots=True)
class Servers:
    """Changes to the servers, each published as a new epoch: new runs know them."""

    gateway: Gateway
    registry: Registry

    async def add(self, name: str, config: ServerConfig) -> tuple[ServerListing, int]:
        """Add a server; return it as listed, and the epoch. Raises ConfigurationError, ServerUnavailableError."""
        listings = await self.gateway.add(name, config)
        epoch = await self.registry.publish(listings)
        return next(listing for listing in listings if listing.name == name), epoch.number

    async def remove(self, name: str) -> int:
        """Remove a server; return the epoch. Raises NotFoundError."""
        epoch = await self.registry.publish(await self.gateway.remove(name))
        return epoch.number

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
        yield Servers(gateway, Registry(EpochRepository(records.engine)))
