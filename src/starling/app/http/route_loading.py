"""Routes that are added to a running application: `/ready` answers before the others are imported."""

import asyncio
from collections.abc import Callable
from typing import Final, cast

from fastapi import APIRouter, FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from starling.app.http import deferred

_THERE_AT_ONCE: Final = frozenset({"/health", "/ready"})


class RouteLoader:
    """Imports the routes of the API and has `add` add them to an application, once."""

    def __init__(self, add: Callable[[APIRouter], None]) -> None:
        self.loaded = False
        self._add = add
        self._loading = asyncio.Lock()

    async def load(self) -> None:
        """Import the routes in a thread and add them."""
        async with self._loading:
            if self.loaded:
                return
            api_routes = await asyncio.to_thread(deferred.api_routes)
            for router in api_routes.ROUTERS:
                self._add(router)
            self.loaded = True


async def load_routes(app: FastAPI) -> None:
    """Import and add the routes that the application doesn't have yet."""
    await cast("RouteLoader", app.state.routes).load()


class HoldForRoutes:
    """Holds a request until its route is there."""

    def __init__(self, app: ASGIApp, routes: RouteLoader) -> None:
        self._app = app
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if not self._routes.loaded and scope["type"] == "http" and scope["path"] not in _THERE_AT_ONCE:
            await self._routes.load()
        await self._app(scope, receive, send)
