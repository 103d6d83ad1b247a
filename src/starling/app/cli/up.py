"""`starling up`: database, servers, worker and API in one process."""

import asyncio
import socket
from contextlib import AsyncExitStack
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from uvicorn.loops.auto import auto_loop_factory

from starling.app.cli.command_settings import service_settings_of, with_servers_found_here
from starling.app.cli.signals import drained_first, run_until_stopped, terminable
from starling.app.cli.terminal.output import progress
from starling.app.cli.terminal.startup_report import Started, report
from starling.app.container import Workshop, open_store, open_workshop
from starling.app.http.app import make_app
from starling.app.http.authentication import open_access
from starling.app.http.dependencies import drain
from starling.app.http.uvicorn_server import bind, serving
from starling.app.runtime.database import Database, kept_running, own_database, wait_for
from starling.app.runtime.gc_tuning import leave_startup_alone
from starling.app.runtime.preflight import check
from starling.app.worker.worker import working
from starling.core.llm import ModelRole
from starling.core.settings import Settings

app = typer.Typer(add_completion=False)


@app.command()
def up(
    context: typer.Context,
    mcp_config: Annotated[
        Path | None, typer.Option(help="An mcpServers file; else STARLING_MCP_CONFIG, else mcp.json in this folder.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="The address to listen on; other machines need a key.")] = None,
    port: Annotated[int | None, typer.Option(help="The port to listen on; 0 takes a free one.")] = None,
    watch: Annotated[
        bool | None,
        typer.Option("--watch", help="Reload whenever the mcpServers file changes, as `registry reload` does."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Say what was started as one line of JSON.")] = False,
) -> None:
    """Start everything in one process, and stop it with Ctrl-C.

    SIGTERM lets each run come to the end of a step before; a second one doesn't. What is unfinished goes on at the
    next start. Uses the database that DATABASE_URL names, else a Postgres of its own that ends with it.
    """
    given = {"mcp_config": mcp_config, "host": host, "port": port, "watch_mcp_config": watch}
    settings = with_servers_found_here(service_settings_of(context, **given))
    check(settings)
    patience = settings.limits.stream_write_seconds
    with (
        terminable(),
        bind(settings.host, settings.port, write_seconds=patience) as listener,
        own_database(settings) as database,
    ):
        run_until_stopped(_run(settings, database, listener, as_json=as_json), auto_loop_factory())


async def _run(settings: Settings, database: Database, listener: socket.socket, *, as_json: bool) -> None:
    """Run until cancelled. It ends in the reverse order: the API first, then the worker, sessions, connections."""
    async with AsyncExitStack() as stack:
        keeper = await stack.enter_async_context(kept_running(database))
        with progress("Preparing the database …") as now:
            await wait_for(database, settings.limits.database_seconds)
            store = await stack.enter_async_context(open_store(settings, database, migrate=True))
            access = await stack.enter_async_context(open_access(settings, store.keys))
            now("Registering MCP servers …")
            shop = await stack.enter_async_context(open_workshop(settings, store))
            worker = await stack.enter_async_context(working(shop.worker))
            api = make_app(store, version("starling-swarm"), access)
            address = await stack.enter_async_context(serving(api, listener))
        leave_startup_alone()
        report(_started(address, shop), as_json=as_json)
        with drained_first(partial(drain, api), shop.worker.drain):
            ended, _ = await asyncio.wait({worker, *filter(None, [keeper])}, return_when=asyncio.FIRST_COMPLETED)
        ended.pop().result()  # neither ends but with an error, or drained


def _started(address: str, shop: Workshop) -> Started:
    models = {role.value: shop.models.describe(role) for role in ModelRole}
    return Started(version("starling-swarm"), address, models, shop.epoch, shop.listings)
