"""The `starling` command: subcommands, global options, exit codes."""

import logging
import sys
from pathlib import Path
from textwrap import indent
from typing import Annotated

import typer

from starling.app.cli.lazy_commands import Lazy, import_quietly, lazy_group
from starling.core.errors import StarlingError
from starling.core.settings.client import read_environment_file

FAILED, USAGE, UNAVAILABLE, UNANSWERED = 1, 2, 3, 4
_EXIT_CODES = {
    "configuration_invalid": USAGE,
    "invalid_request": USAGE,
    "not_found": USAGE,
    "forbidden": USAGE,
    "database_unsuitable": USAGE,
    "database_unavailable": UNAVAILABLE,
    "api_unavailable": UNAVAILABLE,
    "answer_needed": UNANSWERED,
}
_COMMANDS = {
    "init": Lazy("starling.app.cli.init", "Write commented mcp.json and starling.yaml to begin with."),
    "up": Lazy("starling.app.cli.up", "Start everything in one process: database, MCP servers, worker and API."),
    "ask": Lazy("starling.app.cli.ask", "Send a request to the API and show the events of its run."),
    "chat": Lazy("starling.app.cli.ask", "Hold a conversation: each line is a request on one thread."),
    "console": Lazy("starling.app.cli.console", "Open the console in a browser, logged in as you."),
    "status": Lazy("starling.app.cli.status", "Show what runs on this data folder, and how it stands."),
    "run": Lazy(
        "starling.app.cli.run",
        "Manage runs: list, show, tail, explain, compare, fork, approve, cancel, feedback, artifacts, export.",
    ),
    "conversation": Lazy(
        "starling.app.cli.conversation",
        "Manage conversations: list, show, fork, checkout, rewind, diff, prune, delete.",
    ),
    "server": Lazy(
        "starling.app.cli.server",
        "Manage MCP servers: list, show, test, add, import, enable, remove, approve, tool, effects.",
    ),
    "agent": Lazy("starling.app.cli.agent", "Manage agents: list, find, show; create and archive custom ones."),
    "team": Lazy(
        "starling.app.cli.team",
        "Manage teams: build, prove, check, import, export, list, show, history, diff, activate, rollback, archive.",
    ),
    "skill": Lazy(
        "starling.app.cli.skill", "Manage skills: list, show, search, retire, restore, delete, export, import."
    ),
    "key": Lazy("starling.app.cli.key", "Manage API keys: create, list, revoke."),
    "switch": Lazy("starling.app.cli.switch", "Manage kill switches for tools: off, on, list."),
    "registry": Lazy("starling.app.cli.registry", "Manage epochs of servers: list, plan, reload, rollback."),
    "governance": Lazy("starling.app.cli.governance", "Show and check what requests are allowed: show, check."),
    "prompt": Lazy("starling.app.cli.prompt", "Show prompts and what their sources have: list, show, diff, pull."),
    "serve": Lazy("starling.app.cli.serve", "Serve the API only; workers execute the runs."),
    "worker": Lazy("starling.app.cli.worker", "Execute runs only."),
    "doctor": Lazy("starling.app.cli.doctor", "Check the installation and suggest remedies."),
    "db": Lazy("starling.app.cli.db", "Manage the database: upgrade, prune."),
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
        build = import_quietly("starling.app.telemetry.build_info").build_info()
        typer.echo(f"starling {build.version} (commit {build.commit})")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    settings: Annotated[
        Path | None, typer.Option(help="The settings file; default: starling.yaml in this folder, if it exists.")
    ] = None,
    _: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version and the commit.")
    ] = False,
) -> None:
    """Starling makes a specialist agent of each MCP server and lets them solve your requests together."""
    read_environment_file()
    context.obj = settings


def run() -> None:
    """Run the command line and exit with its code. Raises StoppedBySignal."""
    try:
        app()
    except StarlingError as error:
        _log.debug("the command failed", exc_info=error)
        _report(error.message, error.remedy)
        sys.exit(_EXIT_CODES.get(error.code, FAILED))
    except Exception as error:  # noqa: BLE001 - the edge: one line for the user, the traceback for the log
        _log.debug("the command failed", exc_info=error)
        _report(f"{type(error).__name__} inside Starling: {error}", "LOG_LEVEL=DEBUG shows where; please report it.")
        sys.exit(FAILED)


def _report(message: str, remedy: str) -> None:
    text = f"Error: {message}\n{indent(remedy, '  ')}".rstrip()
    import_quietly("starling.app.cli.terminal.output").print_note(text)
