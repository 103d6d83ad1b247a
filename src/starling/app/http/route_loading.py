"""Routes that are added to a running application: `/ready` answers before the others are imported."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from fastapi import APIRouter, FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from starling.app.http.app_state import state_of

_THERE_AT_ONCE: Final = frozenset({"/health", "/ready"})

type LoadedRoutes = Callable[[], Awaitable[tuple[Sequence[APIRouter], object]]]
"""Returns the routes of the API, and the services that they call, once these are loaded."""


def add_routes(app: FastAPI, routers: Sequence[APIRouter], services: object) -> None:
    """Add the routes of the API to an application, unless it has them."""
    state = state_of(app)
    if state.services is None:
        state.services = services
        for router in routers:
            app.include_router(router)


class HoldForRoutes:
    """Holds requests until the routes of the API are loaded, and adds them to the application once."""

    def __init__(self, inner: ASGIApp, app: FastAPI, loaded: LoadedRoutes) -> None:
        self._inner = inner
        self._app = app
        self._loaded = loaded
        self._state = state_of(app)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if self._state.services is None and scope["type"] == "http" and scope["path"] not in _THERE_AT_ONCE:
            routers, services = await self._loaded()
            add_routes(self._app, routers, services)
        await self._inner(scope, receive, send)
