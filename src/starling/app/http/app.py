"""The FastAPI application over an opened store."""

from fastapi import FastAPI

from starling.app.container import Store
from starling.app.http import problems
from starling.app.http.api import Api
from starling.app.http.guard import LoopbackOnly
from starling.app.http.routes import agent, health, runs


def make_app(store: Store, version: str) -> FastAPI:
    """Return the application. It is reachable from this machine only."""
    app = FastAPI(
        title="Starling",
        version=version,
        summary="A self-extending supervisor swarm platform: one specialist agent for every MCP server.",
    )
    app.state.api = Api(store)
    for module in (agent, runs, health):
        app.include_router(module.router)
    problems.install(app)
    app.add_middleware(LoopbackOnly)
    return app
