"""What `starling up` runs in its process: database, servers, worker and API, one after another."""

import asyncio
import socket
from contextlib import AsyncExitStack
from functools import partial
from importlib.metadata import version

from uvicorn.loops.auto import auto_loop_factory

from starling.app.access.local_token import local_token
from starling.app.cli.process_setup import StartTimes, finish_start, run_checks
from starling.app.cli.signals import drain_on_sigterm, run_until_stopped
from starling.app.cli.terminal.output import progress
from starling.app.cli.terminal.startup_report import Started, report
from starling.app.container.database import Database, wait_for_database
from starling.app.container.loader import connect, open_loader
from starling.app.container.servers import open_servers
from starling.app.container.storage import open_storage
from starling.app.http.app import make_app
from starling.app.http.app_state import drain, state_of
from starling.app.http.authentication import open_access_control
from starling.app.http.uvicorn_server import published_address, serving
from starling.core.background_tasks import in_background
from starling.core.principal import HOST_ADMIN
from starling.core.settings.schema import Settings
from starling.infra.llm.model_selection import names_by_role, supervisor_names
from starling.infra.postgres.embedded.server import restarting

_STOP_SECONDS = 12.0  # longer than a worker takes to hand back its runs


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
        draining = asyncio.Event()
        endless: set[asyncio.Task[None]] = set()  # each ends only with an error, or drained
        if database.embedded is not None:
            endless.add(await stack.enter_async_context(restarting(database.embedded)))
        with progress("Preparing the database …") as now:
            if database.embedded is None:
                await wait_for_database(database, settings.limits.database_seconds)
            storage = await stack.enter_async_context(open_storage(settings, database, migrate=True))
            token = local_token(settings.data_dir)
            access = await stack.enter_async_context(open_access_control(settings, storage.keys, token))
            times.end("schema")
            now("Registering MCP servers …")
            servers = await stack.enter_async_context(open_servers(settings, storage, connect))
            times.end("servers")
            loader = await stack.enter_async_context(open_loader(settings, storage))
            endless.add(
                await stack.enter_async_context(in_background(loader.work(servers, draining), "worker", _STOP_SECONDS))
            )
            input_chars = settings.limits.input_chars
            api = make_app(storage, version("starling-swarm"), access, input_chars, loader.routes)
            state_of(api).checks = partial(run_checks, settings)
            address = await stack.enter_async_context(serving(api, listener))
            stack.enter_context(published_address(settings, address))
        times.end("API")
        models = {role.value: str(names[0]) for role, names in (await names_by_role(settings)).items()}
        if planners := supervisor_names(settings):
            models["supervisor"] = str(planners[0])
        epoch, listings = servers.epoch_follower.epoch, servers.listings
        link = f"{address}/console/#code={(await storage.keys.sessions.new_code(HOST_ADMIN)).code}" if token else ""
        report(
            Started(version("starling-swarm"), address, models, epoch, listings, link, times.seconds), as_json=as_json
        )
        await stack.enter_async_context(in_background(finish_start(loader.load(servers)), "finish-start"))
        with drain_on_sigterm(partial(drain, api), draining.set):
            ended, _ = await asyncio.wait(endless, return_when=asyncio.FIRST_COMPLETED)
        ended.pop().result()
