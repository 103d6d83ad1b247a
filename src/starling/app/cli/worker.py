"""`starling worker`: a worker without the API."""

import asyncio
from contextlib import AsyncExitStack
from typing import Annotated

import typer
from uvicorn.loops.auto import auto_loop_factory

from starling.app.cli.platform.command_settings import service_settings_of
from starling.app.cli.process_setup import finish_start, forbid_inspection
from starling.app.cli.signals import drain_on_sigterm, run_until_stopped
from starling.app.cli.stop_signals import treat_sigterm_as_success
from starling.app.cli.terminal.output import print_json, print_line, progress
from starling.app.container.configuration import check_configuration
from starling.app.container.database import Database, find_database, wait_for_database
from starling.app.container.loader import connect, open_loader
from starling.app.container.servers import open_servers
from starling.app.container.storage import open_storage
from starling.app.http.worker_health import serve_worker_health
from starling.core.ids import process_name
from starling.core.llm import ModelRole
from starling.core.settings.schema import Settings
from starling.infra.llm.model_selection import names_by_role

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
    draining = asyncio.Event()
    async with AsyncExitStack() as stack:
        with progress("Connecting to Postgres …") as now:
            await wait_for_database(database, settings.limits.database_seconds)
            now("Registering MCP servers …")
            storage = await stack.enter_async_context(open_storage(settings, database))
            servers = await stack.enter_async_context(open_servers(settings, storage, connect))
            loader = await stack.enter_async_context(open_loader(settings, storage))
            now("Loading what runs need …")
            await finish_start(loader.load(servers, routes=False))
            shown = await stack.enter_async_context(serve_worker_health(settings, storage))
        name = process_name()
        if as_json:
            print_json({"worker": name, "epoch": servers.epoch_follower.epoch, "address": shown.address})
        else:
            model = (await names_by_role(settings))[ModelRole.REASONING][0]
            print_line(f"Worker {name} works with {model}. Ctrl-C stops it.")
        with drain_on_sigterm(shown.drain, draining.set):
            await loader.work(servers, draining)
