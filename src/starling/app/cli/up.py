"""`starling up`: database, servers, worker and API in one process."""

import asyncio
import socket
import time
from contextlib import AsyncExitStack
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import psutil
import typer
from fastapi import FastAPI
from uvicorn.loops.auto import auto_loop_factory

from starling.app.cli.platform.command_settings import service_settings_of, with_servers_found_here
from starling.app.cli.signals import drain_on_sigterm, run_until_stopped, treat_sigterm_as_success
from starling.app.cli.terminal.output import progress
from starling.app.cli.terminal.startup_report import Started, report
from starling.app.container.services import open_services
from starling.app.container.worker_runtime import WorkerRuntime, open_worker_runtime
from starling.app.http.app import make_app
from starling.app.http.authentication import open_access_control
from starling.app.http.dependencies import drain
from starling.app.http.published_address import published_address
from starling.app.http.route_loading import load_routes
from starling.app.http.uvicorn_server import bind, serving
from starling.app.runtime.background_tasks import in_background
from starling.app.runtime.configuration_check import check_configuration
from starling.app.runtime.database import Database, open_database, wait_for_database
from starling.app.runtime.gc_tuning import freeze_startup_objects, pause_collection
from starling.app.runtime.local_token import local_token
from starling.app.runtime.process_privacy import forbid_inspection
from starling.app.worker.worker import running_worker
from starling.core.llm import ModelRole
from starling.core.settings.schema import Settings
from starling.infra.postgres.embedded.restart_loop import restarting

app = typer.Typer(add_completion=False)


class StartTimes:
    """Measures the parts of a start, one after another, from the start of the process on; the first is imports."""

    def __init__(self) -> None:
        self._last = time.time()
        self.seconds: dict[str, float] = {"imports": self._last - psutil.Process().create_time()}

    def end(self, part: str) -> None:
        """End a part; the next one begins."""
        now = time.time()
        self.seconds[part] = now - self._last
        self._last = now


@app.command()
def up(
    context: typer.Context,
    mcp_config: Annotated[
        Path | None,
        typer.Option(help="An mcpServers file; default: STARLING_MCP_CONFIG, then mcp.json in this folder."),
    ] = None,
    host: Annotated[str | None, typer.Option(help="The address to listen on; other machines need a key.")] = None,
    port: Annotated[int | None, typer.Option(help="The port to listen on; 0 takes a free one.")] = None,
    watch: Annotated[
        bool | None,
        typer.Option("--watch", help="Reload whenever the mcpServers file changes, as `registry reload` does."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was started as one line of JSON.")] = False,
) -> None:
    """Start everything in one process; Ctrl-C stops it.

    On SIGTERM each run first finishes its current step; on a second one it does not. Unfinished runs continue at the
    next start. Uses the database of DATABASE_URL, else an embedded Postgres that ends with the process.
    """
    given = {"mcp_config": mcp_config, "host": host, "port": port, "watch_mcp_config": watch}
    times = StartTimes()
    pause_collection()
    forbid_inspection()
    settings = with_servers_found_here(service_settings_of(context, **given))
    check_configuration(settings)
    patience = settings.limits.stream_write_seconds
    with (
        treat_sigterm_as_success(),
        bind(settings.host, settings.port, write_seconds=patience) as listener,
        open_database(settings) as database,
    ):
        times.end("database")
        run_until_stopped(_run(settings, database, listener, times, as_json=as_json), auto_loop_factory())


async def _run(
    settings: Settings, database: Database, listener: socket.socket, times: StartTimes, *, as_json: bool
) -> None:
    """Run until cancelled; then stop in reverse order: API, worker, sessions, connections."""
    async with AsyncExitStack() as stack:
        endless: set[asyncio.Task[None]] = set()  # each ends only with an error, or drained
        if database.embedded is not None:
            endless.add(await stack.enter_async_context(restarting(database.embedded)))
        with progress("Preparing the database …") as now:
            await wait_for_database(database, settings.limits.database_seconds)
            services = await stack.enter_async_context(open_services(settings, database, migrate=True))
            token = local_token(settings.data_dir)
            access = await stack.enter_async_context(open_access_control(settings, services.keys, token))
            times.end("schema")
            now("Registering MCP servers …")
            runtime = await stack.enter_async_context(open_worker_runtime(settings, services))
            times.end("servers")
            endless.add(await stack.enter_async_context(running_worker(runtime.worker)))
            api = make_app(services, version("starling-swarm"), access)
            address = await stack.enter_async_context(serving(api, listener, settings.limits))
            stack.enter_context(published_address(settings, address))
        times.end("API")
        report(_started(address, runtime, times), as_json=as_json)
        await stack.enter_async_context(in_background(_finish_start(api, runtime), "finish-start"))
        with drain_on_sigterm(partial(drain, api), runtime.worker.drain):
            ended, _ = await asyncio.wait(endless, return_when=asyncio.FIRST_COMPLETED)
        ended.pop().result()


async def _finish_start(api: FastAPI, runtime: WorkerRuntime) -> None:
    """Import what requests and runs need and `/ready` doesn't."""
    try:
        await load_routes(api)
        await runtime.finish_start()
    finally:
        freeze_startup_objects()


def _started(address: str, runtime: WorkerRuntime, times: StartTimes) -> Started:
    models = {role.value: runtime.models.describe(role) for role in ModelRole}
    return Started(version("starling-swarm"), address, models, runtime.epoch, runtime.listings, times.seconds)
