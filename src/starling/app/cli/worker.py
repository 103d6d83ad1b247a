"""`starling worker`: a worker without an API."""

from contextlib import AsyncExitStack
from typing import Annotated

import typer
from uvicorn.loops.auto import auto_loop_factory

from starling.app.cli.command_settings import service_settings_of
from starling.app.cli.signals import drained_first, run_until_stopped, terminable
from starling.app.cli.terminal.output import progress, say, say_json
from starling.app.container import open_store, open_workshop
from starling.app.http.worker_health import exposed
from starling.app.runtime.database import Database, find_database, wait_for
from starling.app.runtime.gc_tuning import leave_startup_alone
from starling.app.runtime.preflight import check
from starling.core.llm import ModelRole
from starling.core.settings import Settings

app = typer.Typer(add_completion=False)


@app.command()
def worker(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Say what was started as one line of JSON.")] = False,
) -> None:
    """Work on runs only, beside others that do.

    Uses the database that DATABASE_URL names, else the one of the `starling up` that runs here. SIGTERM lets each run
    come to the end of a step; Ctrl-C, or a second signal, doesn't. What is unfinished then, others go on with.
    """
    settings = service_settings_of(context)
    check(settings)
    with terminable():
        run_until_stopped(_run(settings, find_database(settings), as_json=as_json), auto_loop_factory())


async def _run(settings: Settings, database: Database, *, as_json: bool) -> None:
    async with AsyncExitStack() as stack:
        with progress("Connecting to Postgres …") as now:
            await wait_for(database, settings.limits.database_seconds)
            now("Registering MCP servers …")
            store = await stack.enter_async_context(open_store(settings, database))
            shop = await stack.enter_async_context(open_workshop(settings, store))
            shown = await stack.enter_async_context(exposed(settings, store))
        leave_startup_alone()
        if as_json:
            say_json({"worker": shop.worker.name, "epoch": shop.epoch, "address": shown.address})
        else:
            say(f"Worker {shop.worker.name} works with {shop.models.describe(ModelRole.REASONING)}. Ctrl-C stops it.")
        with drained_first(shown.drain, shop.worker.drain):
            await shop.worker.work()
