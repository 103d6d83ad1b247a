"""What `starling up` runs in its process: database, servers, worker and API, one after another."""

import asyncio
import socket
from contextlib import AsyncExitStack
from functools import partial
from importlib.metadata import version

from fastapi import FastAPI
from uvicorn.loops.auto import auto_loop_factory

from starling.app.access.local_token import local_token
from starling.app.cli.gc_tuning import freeze_startup_objects
from starling.app.cli.signals import drain_on_sigterm, run_until_stopped
from starling.app.cli.start_times import StartTimes
from starling.app.cli.terminal.output import progress
from starling.app.cli.terminal.startup_report import Started, report
from starling.app.container.database import Database
from starling.app.container.database_wait import wait_for_database
from starling.app.container.services import open_services
from starling.app.container.worker_runtime import WorkerRuntime, open_worker_runtime
from starling.app.http.app import make_app
from starling.app.http.authentication import open_access_control
from starling.app.http.dependencies import drain
from starling.app.http.published_address import published_address
from starling.app.http.route_loading import load_routes
from starling.app.http.uvicorn_server import serving
from starling.app.telemetry.deferred import log_format
from starling.app.worker.worker import running_worker
from starling.core.background_tasks import in_background
from starling.core.llm import ModelRole
from starling.core.settings.schema import Settings
from starling.infra.postgres.embedded.restart_loop import restarting


def run_services(
    settings: Settings, database: Database, listener: socket.socket, times: StartTimes, *, as_json: bool
) -> None:
    """Run until a signal or an error ends it."""
    run_until_stopped(_run(settings, database, listener, times, as_json=as_json), auto_loop_factory())


async def _run(
    settings: Settings, database: Database, listener: socket.socket, times: StartTimes, *, as_json: bool
) -> None:
    """Run until cancelled; then stop in reverse order: API, worker, sessions, connections."""
    async with AsyncExitStack() as stack:
        is_ready = asyncio.Event()
        endless: set[asyncio.Task[None]] = set()  # each ends only with an error, or drained
        if database.embedded is not None:
            endless.add(await stack.enter_async_context(restarting(database.embedded)))
        with progress("Preparing the database …") as now:
            if database.embedded is None:
                await wait_for_database(database, settings.limits.database_seconds)
            services = await stack.enter_async_context(open_services(settings, database, migrate=True))
            token = local_token(settings.data_dir)
            access = await stack.enter_async_context(open_access_control(settings, services.keys, token))
            times.end("schema")
            now("Registering MCP servers …")
            runtime = await stack.enter_async_context(open_worker_runtime(settings, services))
            times.end("servers")
            endless.add(await stack.enter_async_context(running_worker(runtime.worker, is_ready)))
            api = make_app(services, version("starling-swarm"), access)
            address = await stack.enter_async_context(serving(api, listener))
            stack.enter_context(published_address(settings, address))
        times.end("API")
        is_ready.set()
        report(_started(address, runtime, times), as_json=as_json)
        await stack.enter_async_context(in_background(_finish_start(api, runtime), "finish-start"))
        with drain_on_sigterm(partial(drain, api), runtime.worker.drain):
            ended, _ = await asyncio.wait(endless, return_when=asyncio.FIRST_COMPLETED)
        ended.pop().result()


async def _finish_start(api: FastAPI, runtime: WorkerRuntime) -> None:
    """Import what requests and runs need and `/ready` doesn't."""
    try:
        await asyncio.to_thread(log_format)
        await load_routes(api)
        await runtime.finish_start()
    finally:
        freeze_startup_objects()


def _started(address: str, runtime: WorkerRuntime, times: StartTimes) -> Started:
    models = {role.value: runtime.models.describe(role) for role in ModelRole}
    return Started(version("starling-swarm"), address, models, runtime.epoch, runtime.listings, times.seconds)
