"""`starling serve`: the API without a worker."""

import asyncio
import socket
from contextlib import AsyncExitStack
from functools import partial
from importlib.metadata import version
from typing import Annotated

import typer
from uvicorn.loops.auto import auto_loop_factory

from starling.app.access.local_token import local_token
from starling.app.cli.options import Host, Port
from starling.app.cli.platform.command_settings import service_settings_of
from starling.app.cli.process_setup import finish_start, forbid_inspection, run_checks
from starling.app.cli.signals import run_until_stopped
from starling.app.cli.stop_signals import treat_sigterm_as_success
from starling.app.cli.terminal.output import print_result
from starling.app.container.database import Database, find_database, wait_for_database
from starling.app.container.loader import open_loader
from starling.app.container.storage import open_storage
from starling.app.http.app import make_app
from starling.app.http.app_state import state_of
from starling.app.http.authentication import open_access_control
from starling.app.http.listener import bind
from starling.app.http.uvicorn_server import published_address, serving
from starling.core.background_tasks import in_background
from starling.core.settings.schema import Settings
from starling.infra.tracing.destination import destination_of

app = typer.Typer(add_completion=False)


@app.command()
def serve(
    context: typer.Context,
    host: Host = None,
    port: Port = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the address as one line of JSON.")] = False,
) -> None:
    """Serve the API only; workers execute the runs.

    Uses the database of DATABASE_URL, else that of the `starling up` that runs on this data folder.
    """
    forbid_inspection()
    settings = service_settings_of(context, host=host, port=port)
    destination_of(settings)  # raises ConfigurationError
    patience = settings.limits.stream_write_seconds
    with treat_sigterm_as_success(), bind(settings.host, settings.port, write_seconds=patience) as listener:
        run_until_stopped(_run(settings, find_database(settings), listener, as_json=as_json), auto_loop_factory())


async def _run(settings: Settings, database: Database, listener: socket.socket, *, as_json: bool) -> None:
    await wait_for_database(database, settings.limits.database_seconds)
    async with AsyncExitStack() as stack:
        storage = await stack.enter_async_context(open_storage(settings, database))
        token = local_token(settings.data_dir)
        access = await stack.enter_async_context(open_access_control(settings, storage.keys, token))
        loader = await stack.enter_async_context(open_loader(settings, storage))
        api = make_app(storage, version("starling-swarm"), access, settings.limits.input_chars, loader.routes)
        state_of(api).checks = partial(run_checks, settings)
        address = await stack.enter_async_context(serving(api, listener))
        await stack.enter_async_context(in_background(finish_start(loader.load()), "finish-start"))
        text = f"Starling's API listens on {address}. Runs are worked on by `starling worker`. Ctrl-C stops it."
        print_result({"address": address}, text, as_json=as_json)
        with published_address(settings, address):
            await asyncio.get_running_loop().create_future()
