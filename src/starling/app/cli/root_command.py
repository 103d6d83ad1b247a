"""The `starling` command: its groups, its global options, and what errors and signals come to."""

import logging
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from starling.app.cli.lazy_commands import Lazy, lazy_group
from starling.app.cli.signals import StoppedBySignal, install_signal_handlers
from starling.core.errors import StarlingError

FAILED, USAGE, UNAVAILABLE = 1, 2, 3
_EXIT_CODES = {
    "configuration_invalid": USAGE,
    "invalid_request": USAGE,
    "not_found": USAGE,
    "database_unsuitable": USAGE,
    "database_unavailable": UNAVAILABLE,
    "api_unavailable": UNAVAILABLE,
}
_COMMANDS = {
    "up": Lazy("starling.app.cli.up", "Start everything in one process: database, servers, worker, API."),
    "ask": Lazy("starling.app.cli.ask", "Send a request to a running Starling and read along."),
    "run": Lazy("starling.app.cli.run", "List, show, tail, answer and cancel runs, read their artifacts."),
    "server": Lazy("starling.app.cli.server", "Manage MCP servers: list, show, test, add, remove."),
    "agent": Lazy("starling.app.cli.agent", "Manage agents of your own: create, list, show, archive."),
    "key": Lazy("starling.app.cli.key", "Manage the keys that the API is called with: create, list, revoke."),
    "switch": Lazy("starling.app.cli.switch", "Stop tools from being called: off, on, list."),
    "registry": Lazy("starling.app.cli.registry", "Change what runs are made of: list, plan, reload, rollback."),
    "serve": Lazy("starling.app.cli.serve", "Serve the API only; runs are left to workers."),
    "worker": Lazy("starling.app.cli.worker", "Work on runs only."),
    "doctor": Lazy("starling.app.cli.doctor", "Say what is wrong, and what to do about it."),
    "db": Lazy("starling.app.cli.db", "Look after the database: upgrade, prune."),
}
_log = logging.getLogger(__name__)

app = typer.Typer(
    name="starling",
    cls=lazy_group(_COMMANDS),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _say_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"starling {version('starling-swarm')}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    settings: Annotated[
        Path | None, typer.Option(help="The settings file; without it, starling.yaml in this folder if there is one.")
    ] = None,
    _: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Say which this is.")
    ] = False,
) -> None:
    """Starling: you give it MCP servers, it makes a specialist of each and lets them solve what you ask."""
    context.obj = settings


def main() -> None:
    """Run the command line and exit: 0 done, 1 it failed, 2 wrong usage or settings, 3 database or API away.

    130 after Ctrl-C; 143 where a command that isn't a service was told to terminate.
    """
    install_signal_handlers()
    try:
        app()
    except StoppedBySignal as stopped:
        sys.exit(stopped.exit_code)
    except StarlingError as error:
        sys.exit(_explained(error))
    except Exception as error:  # noqa: BLE001 - the edge: a person gets a sentence, the log the rest
        _log.debug("the command failed", exc_info=error)
        typer.echo(f"Error: {type(error).__name__} inside Starling: {error}", err=True)
        typer.echo("  LOG_LEVEL=DEBUG shows where; please report it.", err=True)
        sys.exit(FAILED)


def _explained(error: StarlingError) -> int:
    _log.debug("the command failed", exc_info=error)
    typer.echo(f"Error: {error.message}", err=True)
    if error.remedy:
        typer.echo(f"  {error.remedy}", err=True)
    return _EXIT_CODES.get(error.code, FAILED)
