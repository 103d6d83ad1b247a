"""The one loader of what only requests and runs need: LangGraph, MCP's SDK, numpy, and the routes of the API.

Only here are they imported inside of functions. A process imports them in a thread once it listens: first what a run
needs, from its request to its answer; then the other routes, when a request wants one of them, or a second later.
"""

import asyncio
import logging
import warnings
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from fastapi import APIRouter

from mcp_gateway.gateway import Connections, GatewayParts
from mcp_gateway.path.post_effects import Invalidate
from starling.app.container.servers import Servers
from starling.app.storage import Storage
from starling.core.errors import DatabaseUnavailableError
from starling.core.settings.schema import Settings
from starling.core.tools import Halts, ToolGateway
from starling.infra.postgres.runs.call_claims import RecentCalls

_MOST_WARMED = 4  # servers whose sessions are opened before they are needed
_ROUTES_SECONDS = 1.0  # after which routes are imported that no request wanted; the first run is not slowed down by it
_log = logging.getLogger(__name__)


async def connect(parts: GatewayParts, invalidate: Invalidate) -> Connections:
    """Return the connections of a gateway; imports MCP's SDK, before all else where a new server has to be listed."""
    return await (await asyncio.to_thread(_connections)).connect(parts, invalidate)


class Loader:
    """Imports once, and opens the services over the storage: one future, for which routes and the worker wait.

    All routes are a second one: a request that begins a run does not wait for it.
    """

    def __init__(self, settings: Settings, storage: Storage) -> None:
        self._settings = settings
        self._storage = storage
        self._gateway: ToolGateway | None = None
        self._opened = AsyncExitStack()
        self._listening = asyncio.Event()
        self._wanted = asyncio.Event()
        self._loading = asyncio.get_running_loop().create_task(self._loaded(), name="load")
        self._routers = asyncio.get_running_loop().create_task(self._all_routers(), name="load-routes")

    async def load(self, servers: Servers | None = None, *, routes: bool = True) -> None:
        """Import what runs need, then the routes; first open sessions with the servers called last."""
        if servers is not None:
            self._gateway = servers.gateway
            await servers.gateway.connections()
            await warm_recent_servers(RecentCalls(self._storage.engine), servers.gateway, servers.halts)
        self._listening.set()
        await asyncio.shield(self._loading)
        if routes:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), _ROUTES_SECONDS)
            self._wanted.set()
            await asyncio.shield(self._routers)

    async def routes(self, *, every: bool) -> tuple[Sequence[APIRouter], object]:
        """Return the routes, only those that begin runs or every one, and the services that they call, once loaded."""
        services, _, routers = await asyncio.shield(self._loading)
        if every:
            self._wanted.set()
            routers = await asyncio.shield(self._routers)
        return routers, services

    async def work(self, servers: Servers, draining: asyncio.Event) -> None:
        """Execute runs, once what executes them is loaded, until `draining` is set or it is cancelled."""
        services, open_execution, _ = await asyncio.shield(self._loading)
        async with open_execution(self._settings, services, servers, draining) as execution:
            await execution.worker.work()

    async def _loaded(self):
        await self._listening.wait()
        # requests filters this warning out itself, which is lost if the thread restores filters meanwhile
        warnings.filterwarnings("ignore", message="SOCKS support in urllib3")
        services_over, open_execution, routers = await asyncio.to_thread(_imported)
        services = await self._opened.enter_async_context(services_over(self._storage, self._settings, self._gateway))
        return services, open_execution, routers

    async def _all_routers(self) -> Sequence[APIRouter]:
        await self._wanted.wait()
        return await asyncio.to_thread(_imported_routers)

    async def close(self) -> None:
        """Stop loading, and close the services."""
        self._loading.cancel()
        self._routers.cancel()
        await asyncio.gather(self._loading, self._routers, return_exceptions=True)
        await self._opened.aclose()


@asynccontextmanager
async def open_loader(settings: Settings, storage: Storage) -> AsyncGenerator[Loader]:
    """Yield a loader; at the end the services are closed."""
    loader = Loader(settings, storage)
    try:
        yield loader
    finally:
        await loader.close()


async def warm_recent_servers(calls: RecentCalls, gateway: ToolGateway, halts: Halts) -> None:
    """Begin to open the sessions of the at most 4 servers that were called last.

    Servers that are degraded or were removed are left out, and so are those that are switched off for the tenant that
    called them. A session that can't be opened is logged.
    """
    try:
        called = await calls.servers()
    except DatabaseUnavailableError as error:
        _log.info("no sessions are opened in advance: %s", error)
        return
    usable: dict[str, None] = {}  # in order
    for server, tenant in ((one.server, one.tenant) for one in called):
        listing = gateway.listing(server)
        halted = halts.everything(tenant, "") or server in halts.named("server", tenant)
        if listing is not None and listing.state == "ready" and not halted:
            usable[server] = None
    for server in list(usable)[:_MOST_WARMED]:
        gateway.warm(server)


def _connections():
    from mcp_gateway import connections

    return connections


def _imported():
    from starling.app.container.execution import open_execution
    from starling.app.container.services import services_over
    from starling.app.http.routes.agent_run import router

    return services_over, open_execution, (router,)


def _imported_routers():
    from starling.app.http.api_routes import ROUTERS

    return ROUTERS
