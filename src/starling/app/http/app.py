"""The FastAPI application."""

from collections.abc import Callable

from fastapi import APIRouter, FastAPI
from fastapi_offline import FastAPIOffline

from starling.app.container.services import Services
from starling.app.http import problems
from starling.app.http.authentication import AccessControl, AuthenticationMiddleware, PrincipalMiddleware
from starling.app.http.body_limit import BodyLimitMiddleware, largest_body
from starling.app.http.dependencies import AppState
from starling.app.http.openapi import describe
from starling.app.http.problems import Problem
from starling.app.http.request_telemetry import TelemetryMiddleware
from starling.app.http.route_loading import HoldForRoutes, RouteLoader
from starling.app.http.routes import health
from starling.core.principal import Principal


def make_app(services: Services, version: str, access: AccessControl) -> FastAPI:
    """Return the application; `access` guards every route. All routes but those of health are imported later."""
    app = FastAPIOffline(
        title="Starling",
        version=version,
        summary="A self-extending supervisor swarm platform: one specialist agent for every MCP server.",
        responses={status: {"model": Problem} for status in (401, 403, 429)},
    )
    _add_routes(app, services, app.include_router)
    describe(app, keyless=access.keyless)
    app.add_middleware(BodyLimitMiddleware, most=largest_body(services.acceptance.limits.input_chars))
    app.add_middleware(AuthenticationMiddleware, access=access)
    app.add_middleware(TelemetryMiddleware, metrics=services.metrics_exporter.metrics)
    return app


def make_app_for(services: Services, principal: Principal) -> FastAPI:
    """Return the routes alone, for calls within the process: every request is that of `principal`."""
    app = FastAPI(openapi_url=None)
    # as they are: including them would build them a second time, which takes longer than most requests
    _add_routes(app, services, lambda router: app.router.routes.extend(router.routes))
    app.add_middleware(PrincipalMiddleware, principal=principal)
    return app


def _add_routes(app: FastAPI, services: Services, add: Callable[[APIRouter], None]) -> None:
    """Add the routes of health, and what adds the others when they are imported."""
    app.state.api, app.state.routes = AppState(services), RouteLoader(add)
    add(health.router)
    problems.install(app)
    app.add_middleware(HoldForRoutes, routes=app.state.routes)
