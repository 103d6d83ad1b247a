"""The FastAPI application over an opened store."""

from fastapi import FastAPI
from fastapi_offline import FastAPIOffline

from starling.app.container import Store
from starling.app.http import problems
from starling.app.http.authentication import Access, Entrance
from starling.app.http.body_limit import Bounded, largest_body
from starling.app.http.dependencies import Api
from starling.app.http.openapi import describe_keys_as_optional
from starling.app.http.problems import Problem
from starling.app.http.request_telemetry import Observed
from starling.app.http.routes import (
    agents,
    approvals,
    artifacts,
    ask,
    cancel,
    health,
    kill_switches,
    ledger,
    metrics,
    registry,
    resume,
    runs,
)

_ROUTES = (
    *(ask, runs, ledger, artifacts, cancel, resume, approvals),
    *(agents, registry, kill_switches, health, metrics),
)


def make_app(store: Store, version: str, access: Access) -> FastAPI:
    """Return the application, with `access` before every route of it."""
    app = FastAPIOffline(
        title="Starling",
        version=version,
        summary="A self-extending supervisor swarm platform: one specialist agent for every MCP server.",
        responses={status: {"model": Problem} for status in (401, 403, 429)},
    )
    app.state.api = Api(store)
    for module in _ROUTES:
        app.include_router(module.router)
    problems.install(app)
    if not access.require_keys:  # this machine needs none
        describe_keys_as_optional(app)
    app.add_middleware(Bounded, most=largest_body(store.intake.limits.input_chars))
    app.add_middleware(Entrance, access=access)
    app.add_middleware(Observed, metrics=store.scrape.metrics)
    return app
