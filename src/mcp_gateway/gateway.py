"""The gateway as the rest of the platform knows it."""

import json
import logging
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cached_property
from time import perf_counter
from types import MappingProxyType
from typing import Any

from mcp_gateway import deferred
from mcp_gateway.configuration.servers import McpConfig, ServerConfig
from mcp_gateway.path.results.result_cache import ResultCache
from mcp_gateway.path.stage import Stage, failed
from mcp_gateway.registration.catalog import Catalog, Change, Late, Trial
from mcp_gateway.registration.known_servers import Directory
from mcp_gateway.registration.listed_tools import Listed
from mcp_gateway.registration.live_check import LiveCheck
from mcp_gateway.registration.live_review import LiveReview
from mcp_gateway.registration.repository import ServerRepository
from mcp_gateway.sessions.breaker_reports import BreakerReports
from mcp_gateway.sessions.pool import SessionPool
from mcp_gateway.sessions.private_files import NO_PRIVATE_FILES, PrivateFiles
from starling.core.artifacts import DISABLED_ARTIFACT_STORE, ArtifactStore
from starling.core.clock import Deadline
from starling.core.errors import DatabaseUnavailableError, LeaseLostError, SuspendedError
from starling.core.ids import process_name
from starling.core.settings.schema import Limits
from starling.core.tool_calls import ApprovalPolicy, Observation
from starling.core.tools import (
    NO_HALTS,
    CallRecord,
    Halts,
    ServerListing,
    ServerSource,
    ToolCall,
    ToolGateway,
    ToolOutcome,
)

_log = logging.getLogger(__name__)


class Gateway(ToolGateway):
    """Servers, their sessions and the path of a call, built for the first one. Made by `open_gateway`."""

    def __init__(
        self,
        catalog: Catalog,
        sessions: SessionPool,
        directory: Directory,
        live: LiveCheck,
        cache: ResultCache,
        build_path: Callable[[], Stage],
    ) -> None:
        self._catalog = catalog
        self._live = live
        self._cache = cache
        self._sessions = sessions
        self._directory = directory
        self._build_path = build_path

    @cached_property
    def _path(self) -> Stage:
        return self._build_path()

    async def call(self, call: ToolCall, deadline: Deadline, record: CallRecord | None = None) -> ToolOutcome:
        begun = perf_counter()
        try:
            outcome = await self._path(call, deadline, record)
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
        self._cache.invalidate(tenant, tool)

    def forget_results(self) -> None:
        """Forget all kept results: announcements may have been missed."""
        self._cache.clear()

    def warm(self, server: str) -> None:
        known = self._directory.server(server)
        if known is not None and (session := self._sessions.warm(server, known.config)) is not None:
            self._live.begin(session, known)

    def listing(self, server: str) -> ServerListing | None:
        known = self._directory.server(server)
        if known is None:
            return None
        key = server, known.config.hash
        breakers = self._sessions.breakers
        state = breakers.state(key) if breakers.refuses(key) else None
        return known.listing if state is None else replace(known.listing, state="degraded", error=state.text)

    @property
    def open_sessions(self) -> int:
        """How many sessions for calls are open or opening."""
        return self._sessions.count

    @property
    def server_memory(self) -> int:
        """How many bytes the processes of servers used when they were measured last."""
        return self._sessions.memory

    async def sync(
        self, config: McpConfig, late: Late | None = None, *, relist: bool = False, source: ServerSource = "file"
    ) -> tuple[ServerListing, ...]:
        """Make the servers that came from files be exactly these; return what is known then. See `Catalog.sync`."""
        await self._catalog.sync(config, late, relist=relist, source=source)
        return await self.refresh()

    async def republish(self) -> tuple[ServerListing, ...]:
        """Have an epoch made of the servers as they are; return what is known then."""
        await self._catalog.republish()
        return await self.refresh()

    async def plan(
        self,
        config: McpConfig,
        *,
        relist: bool = False,
        source: ServerSource = "file",
        unstarted: Collection[str] = (),
    ) -> Change:
        """Return what `sync` would do, and do nothing. See `Catalog.plan`."""
        return await self._catalog.plan(config, relist=relist, source=source, unstarted=unstarted)

    async def add(self, name: str, config: ServerConfig, listed: Listed | None = None) -> tuple[ServerListing, ...]:
        """Add one server beside those of files; return what is known then. See `Catalog.add`."""
        await self._catalog.add(name, config, listed)
        return await self.refresh()

    async def reconfigure(self, name: str, config: ServerConfig) -> tuple[ServerListing, ...]:
        """Replace the configuration of one server; return what is known then. See `Catalog.reconfigure`."""
        await self._catalog.reconfigure(name, config)
        return await self.refresh()

    async def configure_tool(self, name: str, tool: str, document: Mapping[str, Any]) -> tuple[ServerListing, ...]:
        """Replace the settings of one tool; return what is known then. See `Catalog.configure_tool`."""
        await self._catalog.configure_tool(name, tool, document)
        return await self.refresh()

    async def remove(self, name: str) -> tuple[ServerListing, ...]:
        """Forget one server; return what is known then. Raises NotFoundError."""
        await self._catalog.remove(name)
        return await self.refresh()

    async def try_out(self, name: str) -> Trial:
        """Start and list a known server again, changing nothing. See `Catalog.try_out`."""
        return await self._catalog.try_out(name)

    async def refresh(self) -> tuple[ServerListing, ...]:
        """Know what the database knows now, return it, and close the sessions of what is gone or changed.

        Calls of a removed server are cut off; those of a changed one come to their end.
        """
        config, listings = await self._catalog.load()
        self._directory.replace(config, listings)
        self._sessions.keep_only(self._directory.config_hashes())
        return listings


@asynccontextmanager
async def open_gateway(  # noqa: PLR0913, PLR0917 - all that a gateway is made of
    repository: ServerRepository,
    limits: Limits,
    environment: Mapping[str, str],
    halts: Halts = NO_HALTS,
    artifacts: ArtifactStore = DISABLED_ARTIFACT_STORE,
    approval: ApprovalPolicy = "never",
    secrets: Mapping[str, str] = MappingProxyType({}),
    observed: ServerRepository | None = None,
    private: PrivateFiles = NO_PRIVATE_FILES,
) -> AsyncGenerator[Gateway]:
    """Yield a gateway with the servers of the database; at the end it closes all sessions and processes.

    `environment` is what `${VAR}` in configurations refers to; `halts` lists what is switched off; what is too long
    goes to `artifacts`; `approval` is the policy of servers without one; `secrets` are those of the platform, by name;
    `private` are its files, which servers don't see.
    What servers offer otherwise on open sessions is stored by `observed`, by default by `repository`.
    """
    directory, cache = Directory(secrets, environment), ResultCache()
    async with SessionPool(limits, environment, private) as sessions:
        breakers = sessions.breakers
        reports = BreakerReports(repository.breakers, process_name(), breakers)
        catalog = Catalog(repository, sessions, limits)
        live = LiveCheck(LiveReview(observed or repository), limits.server_start_seconds)

        async def refreshed() -> None:
            await gateway.refresh()

        def build_path() -> Stage:
            wiring = deferred.wiring()
            stored = wiring.StoredResults(artifacts, cache, repository.claims)

            async def invalidate(tenant: str, tool: str) -> None:
                cache.invalidate(tenant, tool)
                try:
                    await repository.announce_invalidation(tenant, tool)
                except DatabaseUnavailableError as error:  # the call itself was made
                    _log.warning("other processes may use results of %s until they expire: %s", tool, error)

            def relist(server: str) -> None:
                catalog.relist_later(server, refreshed)

            ports = wiring.PathPorts(directory, sessions, breakers, live, halts, stored, invalidate, relist)
            return wiring.build_path(ports, limits, approval)

        gateway = Gateway(catalog, sessions, directory, live, cache, build_path)
        await gateway.refresh()
        try:
            yield gateway
        finally:
            await catalog.stop()
            await live.stop()
            await reports.stop()
