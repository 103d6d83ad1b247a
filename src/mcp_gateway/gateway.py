"""The gateway as the rest of the platform knows it."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Protocol

from mcp_gateway.configuration.address_rules import PUBLIC_ONLY, AddressRules
from mcp_gateway.configuration.servers import McpConfig, ServerConfig
from mcp_gateway.path.post_effects import Invalidate
from mcp_gateway.path.result_cache import ResultCache
from mcp_gateway.path.stage import Stage, failed
from mcp_gateway.registration.catalog import Catalog
from mcp_gateway.registration.known_servers import Directory, KnownServer
from mcp_gateway.registration.listed_tools import Listed
from mcp_gateway.registration.repository import ServerRepository
from mcp_gateway.sessions.breakers import BreakerReports, ServerBreakers
from mcp_gateway.sessions.isolation import NO_PRIVATE_FILES, PrivateFiles
from starling.core.artifacts import ArtifactStore
from starling.core.clock import Deadline
from starling.core.errors import DatabaseUnavailableError, LeaseLostError, SuspendedError
from starling.core.ids import process_name
from starling.core.settings.schema import Limits
from starling.core.tool_calls import ApprovalPolicy, Observation
from starling.core.tools import CallRecord, Halts, ServerListing, ToolCall, ToolGateway, ToolOutcome

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GatewayParts:
    """What a gateway and its connections share.

    What servers offer otherwise on open sessions is stored by `observed`. `environment` is what `${VAR}` in
    configurations refers to, also those in `directory`; `halts` lists what is switched off; what is too long goes to
    `artifacts`; `private` are the platform's files, which servers don't see; `approval` is the policy of servers
    without one; `addresses` decides on those of servers that came over HTTP; `of_settings` are servers that no file
    has to name.
    """

    repository: ServerRepository
    observed: ServerRepository
    limits: Limits
    environment: Mapping[str, str]
    halts: Halts
    artifacts: ArtifactStore
    directory: Directory
    private: PrivateFiles = NO_PRIVATE_FILES
    approval: ApprovalPolicy = "never"
    addresses: AddressRules = PUBLIC_ONLY
    of_settings: McpConfig = field(default_factory=dict[str, ServerConfig])
    breakers: ServerBreakers = field(default_factory=ServerBreakers)
    cache: ResultCache = field(default_factory=ResultCache)


class SessionCount(Protocol):
    """The open sessions."""

    @property
    def count(self) -> int:
        """The number of sessions for calls that are open or being opened."""
        ...

    def keep_only(self, configs: Mapping[str, str]) -> None:
        """Begin to close the sessions of all configurations but these, given by server as hashes."""
        ...


class Connections(Protocol):
    """Sessions with servers, and the path of a call: `mcp_gateway.connections`, which imports MCP's SDK."""

    @property
    def path(self) -> Stage:
        """The path of a call."""
        ...

    @property
    def sessions(self) -> SessionCount:
        """The open sessions."""
        ...

    async def list_server(self, name: str, config: ServerConfig, seconds: float) -> Listed:
        """Start a server, list its tools and stop it, within so many seconds. Raises ServerUnavailableError."""
        ...

    def warm(self, name: str, server: KnownServer) -> None:
        """Begin to open a session."""
        ...

    async def close(self) -> None:
        """Close all sessions and processes."""
        ...


type Connect = Callable[[GatewayParts, Invalidate], Awaitable[Connections]]
"""Makes the connections of a gateway when a server is started or called for the first time."""


class Gateway(ToolGateway):
    """Servers as they are known, and the connections to them. Made by `open_gateway`; `catalog` changes them."""

    def __init__(self, parts: GatewayParts, connect: Connect) -> None:
        self._parts = parts
        self._directory = parts.directory
        self.catalog = Catalog(parts.repository, self._list_server, parts.limits, self.refresh, parts.of_settings)
        self._connect = connect
        self._connecting = asyncio.Lock()
        self._connections: Connections | None = None

    async def connections(self) -> Connections:
        """Return the connections to servers, made by the first call."""
        if self._connections is None:
            async with self._connecting:
                if self._connections is None:
                    self._connections = await self._connect(self._parts, self._invalidate)
        return self._connections

    async def call(self, call: ToolCall, deadline: Deadline, record: CallRecord | None = None) -> ToolOutcome:
        begun = perf_counter()
        try:
            connections = self._connections or await self.connections()
            outcome = await connections.path(call, deadline, record)
        except (SuspendedError, LeaseLostError, DatabaseUnavailableError):  # the record's: the call isn't made now
            raise
        except Exception:  # noqa: BLE001 - the edge: one call, whatever happens in it, is one outcome
            _log.exception("tool call %s of %s failed in the platform", call.id, call.tool.full_name)
            text = f"Starling itself failed at this call: look for {call.id} in its log."
            outcome = failed(call, Observation.PLATFORM_ERROR, "internal", text)
        return replace(outcome, duration_ms=(perf_counter() - begun) * 1000)

    def forget_result(self, notice: str) -> None:
        """Forget the kept results that another process has announced as obsolete. See `CACHE_CHANNEL`."""
        tenant, tool = json.loads(notice)
        self._parts.cache.invalidate(tenant, tool)

    def forget_results(self) -> None:
        """Forget all kept results: announcements may have been missed."""
        self._parts.cache.clear()

    def warm(self, server: str) -> None:
        known = self._directory.server(server)
        if known is not None and self._connections is not None:
            self._connections.warm(server, known)

    def listing(self, server: str) -> ServerListing | None:
        known = self._directory.server(server)
        if known is None:
            return None
        key, breakers = (server, known.config.hash), self._parts.breakers
        state = breakers.state(key) if breakers.refuses(key) else None
        return known.listing if state is None else replace(known.listing, state="degraded", error=state.text)

    @property
    def open_sessions(self) -> int:
        """How many sessions for calls are open or opening."""
        return self._connections.sessions.count if self._connections else 0

    async def refresh(self) -> tuple[ServerListing, ...]:
        """Know what the database knows now, return it, and close the sessions of what is gone or changed.

        Calls of a removed server are cut off; those of a changed one come to their end.
        """
        config, listings = await self.catalog.load()
        await asyncio.to_thread(self._directory.replace, config, listings)  # thousands of secrets take seconds
        if self._connections is not None:
            self._connections.sessions.keep_only({name: server.hash for name, server in config.items()})
        return listings

    async def close(self) -> None:
        """Stop what runs in the background, and close all sessions and processes."""
        await self.catalog.stop()
        if self._connections is not None:
            await self._connections.close()

    async def _list_server(self, name: str, config: ServerConfig, seconds: float) -> Listed:
        return await (await self.connections()).list_server(name, config, seconds)

    async def _invalidate(self, tenant: str, tool: str) -> None:
        self._parts.cache.invalidate(tenant, tool)
        with suppress(DatabaseUnavailableError):  # others use their results until they expire
            await self._parts.repository.announce_invalidation(tenant, tool)


@asynccontextmanager
async def open_gateway(parts: GatewayParts, connect: Connect) -> AsyncGenerator[Gateway]:
    """Yield a gateway with the servers of the database; at the end it closes all sessions and processes."""
    gateway = Gateway(parts, connect)
    await gateway.refresh()
    reports = BreakerReports(parts.repository.breakers, process_name(), parts.breakers)
    try:
        yield gateway
    finally:
        await reports.stop()
        await gateway.close()
