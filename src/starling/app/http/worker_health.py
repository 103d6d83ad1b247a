"""Health and metrics of a worker process that serves no API."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

from fastapi import FastAPI

from starling.app.access.local_token import local_token
from starling.app.http import problems
from starling.app.http.app_state import AppState, drain
from starling.app.http.authentication import AuthenticationMiddleware, open_access_control
from starling.app.http.listener import bind
from starling.app.http.route_loading import append_routes
from starling.app.http.routes import health, metrics
from starling.app.http.uvicorn_server import serving
from starling.app.storage import Storage
from starling.core.settings.schema import Settings


@dataclass(frozen=True, slots=True)
class WorkerHealth:
    """The address, if any, and what makes `/ready` answer that the process is draining."""

    address: str | None = None
    drain: Callable[[], None] = lambda: None


@asynccontextmanager
async def serve_worker_health(settings: Settings, storage: Storage) -> AsyncGenerator[WorkerHealth]:
    """Serve `/health`, `/ready` and `/metrics` on `worker_port`, under the API's rules.

    Without that setting nothing is served. Raises ConfigurationError.
    """
    if settings.worker_port is None:
        yield WorkerHealth()
        return
    async with open_access_control(settings, storage.keys, local_token(settings.data_dir)) as access:
        app = FastAPI(title="Starling worker", openapi_url=None)
        app.state.api = AppState(storage)
        for module in (health, metrics):
            append_routes(app, module.router)
        problems.install(app)
        app.add_middleware(AuthenticationMiddleware, access=access)
        async with serving(app, bind(settings.host, settings.worker_port)) as address:
            yield WorkerHealth(address, partial(drain, app))
