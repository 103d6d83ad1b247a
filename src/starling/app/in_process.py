"""The whole platform inside the process of a Python program: what `starling up` runs, without an address."""

from collections.abc import Generator
from concurrent.futures import CancelledError
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import httpx
from anyio.abc import TaskStatus
from anyio.from_thread import BlockingPortal, start_blocking_portal
from fastapi import FastAPI

from starling.app.cli.platform.command_settings import with_servers_found_here
from starling.app.cli.platform.settings_file import DEFAULT, read_settings_file
from starling.app.container.configuration import check_configuration
from starling.app.container.database import Database, open_database, wait_for_database
from starling.app.container.execution import open_execution
from starling.app.container.loader import connect
from starling.app.container.servers import open_servers
from starling.app.container.services import services_over
from starling.app.container.storage import open_storage
from starling.app.http.api_routes import make_app_for
from starling.client.api import Api
from starling.core.background_tasks import in_background
from starling.core.principal import DEFAULT_TENANT, Principal, Scope
from starling.core.settings.loading import load_settings
from starling.core.settings.schema import Settings

_URL: Final = "http://in-process"  # never connected to
_ENDED: Final = "the platform in this process has ended"
_STOP_SECONDS: Final = 12.0  # longer than a worker takes to hand back its runs


@contextmanager
def in_process(settings_file: Path | None = None) -> Generator[Api]:
    """Yield the API of a platform that runs in this process until the block ends, with the settings of `up`.

    Its caller is the tenant `default` with all scopes. Raises ConfigurationError, DatabaseUnavailableError.
    """
    settings = load_settings(read_settings_file(settings_file), str(settings_file or DEFAULT))
    settings = with_servers_found_here(settings)
    check_configuration(settings)
    with open_database(settings, meanwhile=lambda: None) as database, start_blocking_portal(name="starling") as thread:
        running, routes = thread.start_task(_run, settings, database)
        try:
            with closing(Api(_URL, transport=routes)) as api:
                yield api
        finally:
            thread.call(routes.requests.stop, True)
            running.result()


async def _run(settings: Settings, database: Database, *, task_status: TaskStatus["_Routes"]) -> None:
    """Run a platform until its requests are stopped; runs that haven't ended go on at the next start."""
    await wait_for_database(database, settings.limits.database_seconds)
    async with (
        open_storage(settings, database, migrate=True) as storage,
        open_servers(settings, storage, connect) as servers,
        services_over(storage, settings, servers.gateway) as services,
        open_execution(settings, services, servers) as execution,
        in_background(execution.worker.work(), "worker", _STOP_SECONDS),
        BlockingPortal() as requests,
    ):
        caller = Principal(DEFAULT_TENANT, "", frozenset(Scope), on_host=True)
        task_status.started(_Routes(make_app_for(services, caller), requests))
        await requests.sleep_until_stopped()


class _Routes(httpx.BaseTransport):
    """Answers requests of other threads by the routes of the API; to stop `requests` ends those that wait."""

    def __init__(self, app: FastAPI, requests: BlockingPortal) -> None:
        self._transport = httpx.ASGITransport(app)
        self.requests = requests

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Return the answer to a request, read to its end. Raises ConnectError once the platform ends."""
        try:
            answering = self.requests.start_task_soon(self._sent, request)
        except RuntimeError:
            raise httpx.ConnectError(_ENDED, request=request) from None
        try:
            answer = answering.result()
        except CancelledError:
            raise httpx.ConnectError(_ENDED, request=request) from None
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)

    async def _sent(self, request: httpx.Request) -> httpx.Response:
        async with httpx.AsyncClient(transport=self._transport) as client:
            return await client.send(request)
