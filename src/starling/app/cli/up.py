"""`starling up`: database, servers, worker and API in one process. The embedded database starts during the imports."""

import gc
from typing import Annotated, Final

import typer

from starling.app.cli.lazy_commands import import_quietly
from starling.app.cli.options import Host, McpConfig, Port
from starling.app.cli.platform.command_settings import service_settings_of, with_servers_found_here
from starling.app.cli.process_setup import StartTimes, forbid_inspection
from starling.app.cli.stop_signals import treat_sigterm_as_success
from starling.app.container.configuration import check_configuration
from starling.app.container.database import open_database
from starling.app.http.listener import bind

_SERVICES: Final = "starling.app.cli.up_services"  # FastAPI, SQLAlchemy, the gateway and the brain

app = typer.Typer(add_completion=False)


@app.command()
def up(
    context: typer.Context,
    mcp_config: McpConfig = None,
    host: Host = None,
    port: Port = None,
    watch: Annotated[
        bool | None,
        typer.Option("--watch", help="Reload servers whenever the mcpServers file changes, as `registry reload` does."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was started as one line of JSON.")] = False,
) -> None:
    """Start everything in one process; Ctrl-C stops it.

    On SIGTERM each run first finishes its current step; on a second one it does not. Unfinished runs continue at the
    next start. Uses the database of DATABASE_URL, else an embedded Postgres that ends with the process.
    """
    given = {"mcp_config": mcp_config, "host": host, "port": port, "watch_mcp_config": watch}
    times = StartTimes()
    gc.disable()  # until `freeze_startup_objects`: a start makes objects that stay, and no garbage
    forbid_inspection()
    settings = with_servers_found_here(service_settings_of(context, **given))
    check_configuration(settings)
    patience = settings.limits.stream_write_seconds

    def load() -> None:
        import_quietly(_SERVICES)
        times.end("imports")

    with (
        treat_sigterm_as_success(),
        bind(settings.host, settings.port, write_seconds=patience) as listener,
        open_database(settings, meanwhile=load) as database,
    ):
        times.end("database")
        import_quietly(_SERVICES).run_services(settings, database, listener, times, as_json=as_json)
