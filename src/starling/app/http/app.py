"""The FastAPI application of a platform. Light: `/ready` answers before the routes of the API are imported."""

from typing import Final

from fastapi import FastAPI
from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from starling.app.http import problems
from starling.app.http.app_state import AppState
from starling.app.http.authentication import AccessControl, AuthenticationMiddleware
from starling.app.http.openapi import describe
from starling.app.http.problems import refusals
from starling.app.http.request_telemetry import TelemetryMiddleware
from starling.app.http.route_loading import HoldForRoutes, LoadedRoutes
from starling.app.http.routes import health
from starling.app.storage import Storage

_BODY_BYTES: Final = 8 * 1024 * 1024
_BYTES_PER_CHARACTER: Final = 12  # the longest way to write one in JSON: two \uXXXX


def make_app(storage: Storage, version: str, access: AccessControl, input_chars: int, loaded: LoadedRoutes) -> FastAPI:
    """Return the application; `access` guards every route, and `input_chars` bounds a request's text.

    All routes but those of health are added when they are loaded.
    """
    app = FastAPIOffline(
        title="Starling",
        version=version,
        summary="A self-extending supervisor swarm platform: one specialist agent for every MCP server.",
        responses=refusals(401, 403, 429),
    )
    app.state.api = AppState(storage)
    app.include_router(health.router)
    problems.install(app)
    app.add_middleware(HoldForRoutes, app=app, loaded=loaded)
    describe(app, keyless=access.keyless)
    app.add_middleware(BodyLimitMiddleware, most=max(_BODY_BYTES, 2 * _BYTES_PER_CHARACTER * input_chars))
    app.add_middleware(AuthenticationMiddleware, access=access)
    app.add_middleware(TelemetryMiddleware, metrics=storage.metrics.metrics)
    return app


class BodyLimitMiddleware:
    """Answers a body that is too large with 413, without reading all of it."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app = app
        self._most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; reading more than the limit raises HTTPException."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        left = self._most

        async def bounded() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise HTTPException(413, f"The body has more than {self._most} bytes")
            return message

        await self._app(scope, bounded, send)
