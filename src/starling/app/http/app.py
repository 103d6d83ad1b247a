"""The FastAPI application of a platform. Light: `/ready` answers before the routes of the API are imported."""

from fastapi import FastAPI
from fastapi_offline import FastAPIOffline

from starling.app.http import problems
from starling.app.http.app_state import AppState
from starling.app.http.authentication import AccessControl, AuthenticationMiddleware
from starling.app.http.body_limits import BodyLimitMiddleware
from starling.app.http.openapi import describe
from starling.app.http.request_telemetry import TelemetryMiddleware
from starling.app.http.route_loading import HoldForRoutes, LoadedRoutes, append_routes
from starling.app.http.routes import health
from starling.app.storage import Storage


def make_app(storage: Storage, version: str, access: AccessControl, input_chars: int, loaded: LoadedRoutes) -> FastAPI:
    """Return the application; `access` guards every route, and `input_chars` bounds a request's text.

    All routes but those of health are added when they are loaded.
    """
    app = FastAPIOffline(
        title="Starling",
        version=version,
        summary="A self-extending supervisor swarm platform: one specialist agent for every MCP server.",
    )
    app.state.api = AppState(storage)
    append_routes(app, health.router)
    problems.install(app)
    app.add_middleware(HoldForRoutes, app=app, loaded=loaded)
    describe(app, keyless=access.keyless)
    app.add_middleware(BodyLimitMiddleware, input_chars=input_chars)
    app.add_middleware(AuthenticationMiddleware, access=access)
    app.add_middleware(TelemetryMiddleware, metrics=storage.metrics.metrics)
    return app
