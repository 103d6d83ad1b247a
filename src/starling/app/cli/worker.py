"""`starling worker`: a worker without the API."""

from contextlib import AsyncExitStack
from typing import Annotated

import typer
from uvicorn.loops.auto import auto_loop_factory

from starling.app.cli.gc_tuning import freeze_startup_objects
from starling.app.cli.platform.command_settings import service_settings_of
from starling.app.cli.process_privacy import forbid_inspection
from starling.app.cli.signals import drain_on_sigterm, run_until_stopped, treat_sigterm_as_success
from starling.app.cli.terminal.output import print_json, print_line, progress
from starling.app.container.configuration_check import check_configuration
from starling.app.container.database import Database, find_database
from starling.app.container.database_wait import wait_for_database
from starling.app.container.services import open_services
from starling.app.container.worker_runtime import WorkerRuntime, open_worker_runtime
from starling.app.http.worker_health import serve_worker_health
from starling.core.background_tasks import in_background
from starling.core.llm import ModelRole
from starling.core.settings.schema import Settings

app = typer.Typer(add_completion=False)


@app.command()
def worker(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was started as one line of JSON.")] = False,
) -> None:
    """Execute runs only; any number of workers share one database.

    Uses the database of DATABASE_URL, else that of the `starling up` that runs on this data folder. On SIGTERM each run
    finishes its current step; on Ctrl-C or a second signal it does not. Other workers continue unfinished runs.
    """
    forbid_inspection()
    settings = service_settings_of(context)
    check_configuration(settings)
    with treat_sigterm_as_success():
        run_until_stopped(_run(settings, find_database(settings), as_json=as_json), auto_loop_factory())


async def _run(settings: Settings, database: Database, *, as_json: bool) -> None:
    async with AsyncExitStack() as stack:
        with progress("Connecting to Postgres …") as now:
            await wait_for_database(database, settings.limits.database_seconds)
            now("Registering MCP servers …")
            services = await stack.enter_async_context(open_services(settings, database))
            runtime = await stack.enter_async_context(open_worker_runtime(settings, services))
            shown = await stack.enter_async_context(serve_worker_health(settings, services))
        if as_json:
            print_json({"worker": runtime.worker.name, "epoch": runtime.epoch, "address": shown.address})
        else:
            model = runtime.models.describe(ModelRole.REASONING)
            print_line(f"Worker {runtime.worker.name} works with {model}. Ctrl-C stops it.")
        await stack.enter_async_context(in_background(_finish_start(runtime), "finish-start"))
        with drain_on_sigterm(shown.drain, runtime.worker.drain):
            await runtime.worker.work()


async def _finish_start(runtime: WorkerRuntime) -> None:
    """Import what executes runs."""
    try:
        await runtime.finish_start()
    finally:
        freeze_startup_objects()
