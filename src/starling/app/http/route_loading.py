"""Routes that are added to a running application: `/ready` answers before the others are imported."""

from collections.abc import Awaitable, Sequence
from typing import Final, Protocol

from fastapi import APIRouter, FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from starling.app.http.app_state import state_of

_THERE_AT_ONCE: Final = frozenset({"/health", "/ready"})
_BEGIN_RUNS: Final = frozenset({"/v1/agent/run", "/process"})


class LoadedRoutes(Protocol):
    """Returns routes of the API, and the services that they call, once these are loaded."""

    def __call__(self, *, every: bool) -> Awaitable[tuple[Sequence[APIRouter], object]]:
        """Return every route, or at least those that begin runs."""
        ...


def append_routes(app: FastAPI, router: APIRouter) -> None:
    """Add the routes of a router as they are: `include_router` builds each again, at its first request."""
    app.router.routes.extend(router.routes)


def add_routes(app: FastAPI, routers: Sequence[APIRouter], services: object) -> None:
    """Add those routes of the API to an application that it does not have."""
    state = state_of(app)
    state.services = services
    for router in routers:
        if router not in state.routers:
            state.routers.append(router)
            append_routes(app, router)


class HoldForRoutes:
    """Holds requests until their routes are loaded, and adds these to the application once."""

    def __init__(self, inner: ASGIApp, app: FastAPI, loaded: LoadedRoutes) -> None:
        self._inner = inner
        self._app = app
        self._loaded = loaded
        self._complete = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if not self._complete and scope["type"] == "http" and scope["path"] not in _THERE_AT_ONCE:
            every = scope["path"] not in _BEGIN_RUNS
            routers, services = await self._loaded(every=every)
            add_routes(self._app, routers, services)
            self._complete = every
        await self._inner(scope, receive, send)
