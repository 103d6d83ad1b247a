"""The whole platform inside the process of a Python program: what `starling up` runs, without an address."""

import asyncio
from collections.abc import Generator
from concurrent.futures import CancelledError, Future
from contextlib import AsyncExitStack, closing, contextmanager
from pathlib import Path
from threading import Lock, Thread
from typing import Final

import httpx
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
    with open_database(settings, meanwhile=lambda: None) as database:
        platform = _Platform(settings, database)
        try:
            with closing(Api(_URL, transport=platform.started())) as api:
                yield api
        finally:
            platform.stop()


class _Platform:
    """The parts of a platform in an event loop of its own thread."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self._settings = settings
        self._database = database
        self._ready: Future[_Routes] = Future()
        self._loop = asyncio.new_event_loop()
        self._stopped = asyncio.Event()
        self._thread = Thread(target=self._loop.run_until_complete, args=(self._run(),), name="starling")

    def started(self) -> "_Routes":
        """Return what answers requests, once the platform is there. Raises what its start raises."""
        self._thread.start()
        return self._ready.result()

    def stop(self) -> None:
        """End the platform; runs that haven't ended go on at the next start."""
        if self._thread.ident is not None:
            self._loop.call_soon_threadsafe(self._stopped.set)
            self._thread.join()
        self._loop.close()

    async def _run(self) -> None:
        settings, database = self._settings, self._database
        async with AsyncExitStack() as stack:
            try:
                await wait_for_database(database, settings.limits.database_seconds)
                storage = await stack.enter_async_context(open_storage(settings, database, migrate=True))
                servers = await stack.enter_async_context(open_servers(settings, storage, connect))
                services = await stack.enter_async_context(services_over(storage, settings, servers.gateway))
                execution = await stack.enter_async_context(open_execution(settings, services, servers))
                work = in_background(execution.worker.work(), "worker", _STOP_SECONDS)
                await stack.enter_async_context(work)
            except BaseException as error:  # noqa: BLE001 - it is raised where the platform was started
                self._ready.set_exception(error)
                return
            caller = Principal(DEFAULT_TENANT, "", frozenset(Scope), on_host=True)
            routes = _Routes(self._loop, make_app_for(services, caller))
            self._ready.set_result(routes)
            await self._stopped.wait()
            routes.end()


class _Routes(httpx.BaseTransport):
    """Answers requests of other threads by the routes of the API."""

    def __init__(self, loop: asyncio.AbstractEventLoop, app: FastAPI) -> None:
        self._loop = loop
        self._transport = httpx.ASGITransport(app)
        self._lock = Lock()
        self._open = set[Future[httpx.Response]]()
        self._has_ended = False

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Return the answer to a request, read to its end. Raises ConnectError once the platform ends."""
        with self._lock:
            if self._has_ended:
                raise httpx.ConnectError(_ENDED, request=request)
            answering = asyncio.run_coroutine_threadsafe(self._sent(request), self._loop)
            self._open.add(answering)
        try:
            answer = answering.result()
        except CancelledError:
            raise httpx.ConnectError(_ENDED, request=request) from None
        finally:
            with self._lock:
                self._open.discard(answering)
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)

    def end(self) -> None:
        """Answer no request any more: threads that wait for one get an error."""
        with self._lock:
            left, self._has_ended = [*self._open], True
        for answering in left:
            answering.cancel()

    async def _sent(self, request: httpx.Request) -> httpx.Response:
        async with httpx.AsyncClient(transport=self._transport) as client:
            return await client.send(request)
