"""What a worker without the API shows of itself: its health and its metrics."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

from fastapi import FastAPI

from starling.app.container import Store
from starling.app.http import problems
from starling.app.http.authentication import Access, Entrance, open_access
from starling.app.http.dependencies import Api, drain
from starling.app.http.routes import health, metrics
from starling.app.http.uvicorn_server import bind, serving
from starling.core.settings import Settings


@dataclass(frozen=True, slots=True)
class Exposed:
    """Where something is served, if it is, and how `/ready` there is told that the process drains."""

    address: str | None = None
    drain: Callable[[], None] = lambda: None


@asynccontextmanager
async def exposed(settings: Settings, store: Store) -> AsyncGenerator[Exposed]:
    """Serve `/health`, `/ready` and `/metrics` on `worker_port`, under the API's rules.

    Without that setting nothing is served. Raises ConfigurationError.
    """
    if settings.worker_port is None:
        yield Exposed()
        return
    async with open_access(settings, store.keys) as access:
        app = _app(store, access)
        async with serving(app, bind(settings.host, settings.worker_port)) as address:
            yield Exposed(address, partial(drain, app))


def _app(store: Store, access: Access) -> FastAPI:
    app = FastAPI(title="Starling worker", openapi_url=None)
    app.state.api = Api(store)
    for module in (health, metrics):
        app.include_router(module.router)
    problems.install(app)
    app.add_middleware(Entrance, access=access)
    return app
