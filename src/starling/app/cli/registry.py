"""`starling registry`: list, plan, reload and roll back epochs."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from starling.app.cli.options import Json, Latest, McpConfig, Utc
from starling.app.cli.platform import late_imports
from starling.app.cli.platform.connection import Connection, connection_of
from starling.app.cli.platform.settings_file import MCP_FILE, is_here
from starling.app.cli.prompt import place
from starling.app.cli.terminal.formats import moment
from starling.app.cli.terminal.output import diagnostics, print_json, print_line, print_list, progress, write
from starling.client.api import Document
from starling.core.errors import ConfigurationError

_PATH: Final = "/v1/registry"
_LISTING_SECONDS: Final = 600.0  # servers are started one after another where there are many
_WARNINGS: Final = {
    "prompt_warnings": "prompt {}",
    "broken_agents": "agent {} can't work then",
    "broken_teams": "team {} lacks something then",
}
CHANGES = 10  # the exit code of a plan that isn't empty

app = typer.Typer(add_completion=False, no_args_is_help=True)

_Relist = Annotated[bool, typer.Option("--relist", help="Also list the tools of unchanged servers again.")]


@app.callback()
def root() -> None:
    """Change which servers runs use. Runs that have begun keep the epoch that they began with."""


@app.command("list")
def list_epochs(context: typer.Context, limit: Latest = 20, utc: Utc = False, as_json: Json = False) -> None:
    """List the epochs: who made each and when, what changed, and how many runs use it."""

    def cells(epoch: Document) -> Sequence[str]:
        state = "active" if epoch["active"] else "closed" if epoch["closed_at"] else "held" if epoch["runs"] else "open"
        made, by = moment(epoch["created_at"], utc=utc), f"{epoch['actor']}, {epoch['origin']}"
        return str(epoch["number"]), state, made, by, str(epoch["runs"]), ", ".join(_briefly(epoch["changes"]))

    found = connection_of(context).api().get(_PATH, limit=limit)["epochs"]
    empty = "There is no epoch yet. `starling up` or `starling registry reload` makes one."
    print_list(found, ("EPOCH", "STATE", "MADE", "BY", "RUNS", "WHAT CHANGED"), cells, empty=empty, as_json=as_json)


@app.command()
def plan(context: typer.Context, mcp_config: McpConfig = None, relist: _Relist = False, as_json: Json = False) -> None:
    """Show what a reload would change, without changing anything.

    New and changed servers are started and listed; without a file only prompts are compared. Exits with 0 if nothing
    would change, with 10 otherwise.
    """
    report = _listed(connection_of(context), "plan", mcp_config, relist=relist)
    _print_report(report, f"A reload would make of epoch {report['epoch']}:", as_json=as_json)
    if report["changed"]:
        raise typer.Exit(CHANGES)


@app.command()
def reload(
    context: typer.Context, mcp_config: McpConfig = None, relist: _Relist = False, as_json: Json = False
) -> None:
    """Replace the servers that came from files by those of this file, in every process. `plan` shows the changes.

    Servers added with `starling server add` are kept, and all of them without a file. Prompts take the texts that their
    sources have now.
    """
    report = _listed(connection_of(context), "reload", mcp_config, relist=relist)
    _print_report(report, f"Epoch {report['epoch']} is active:", as_json=as_json)


@app.command()
def rollback(
    context: typer.Context,
    number: Annotated[
        int | None,
        typer.Argument(
            min=1, max=2**63 - 1, help="The epoch to go back to; default: the one before servers last changed."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a new epoch with the servers of an earlier one. Tenants keep their agents and teams.

    The next start or reload reads the file again and applies it.
    """
    report = connection_of(context).api().post(f"{_PATH}/rollback", {"number": number})
    _print_report(report, f"Epoch {report['epoch']} is active:", as_json=as_json)


def _listed(connection: Connection, what: str, given: Path | None, *, relist: bool) -> Document:
    """Return the report of a plan or a reload with the servers of the file; without a file they stay as they are.

    The governance table is that of the settings, where they have one.
    """
    table = late_imports.governance(connection.context) if connection.settings.governs else None
    governance = {} if table is None else {"governance": table}
    found_here = MCP_FILE if is_here(MCP_FILE) else None
    file = given or connection.settings.mcp_config or found_here
    if file is None and relist:
        raise ConfigurationError(
            "There is no mcpServers file to read.", "Name one with --mcp-config, or write mcp.json in this folder."
        )
    if file is None:
        write(diagnostics(), "There is no mcpServers file here (--mcp-config): servers stay as they are.\n")
        with progress("Asking the sources of prompts …"):
            return connection.api().post(f"{_PATH}/{what}", governance or None, seconds=_LISTING_SECONDS)
    servers = {**late_imports.read_servers(file), **governance}
    with progress("Listing new and changed servers …"):
        return connection.api().post(f"{_PATH}/{what}", servers, seconds=_LISTING_SECONDS, relist=str(relist).lower())


def _print_report(report: Document, headline: str, *, as_json: bool) -> None:
    if as_json:
        print_json({name: report[name] for name in report if name != "changed"})
        return
    found = [*_lines(report)]
    print_line(headline if found else f"Nothing to change: epoch {report['epoch']} says the same.")
    for line in found:
        print_line(f"  {line}")
    for server, why in report["warnings"].items():
        print_line(f"  ! {server}: {why}", "yellow")
    for server, tools in report["quarantined"].items():
        for tool, why in tools.items():
            print_line(
                f"  ! {server}.{tool} is quarantined: {why} `starling server approve {server}` shows it.", "yellow"
            )
    for part, said in _WARNINGS.items():
        for name, why in report[part].items():
            print_line(f"  ! {said.format(name)}: {why}", "yellow")
    for text in report.get("governance_warnings", ()):
        print_line(f"  ! governance: {text}", "yellow")
    for tool, names in report["tool_settings"].items():
        print_line(f"  = {tool} keeps settings of its own, which win over the file: {', '.join(names)}")


def _lines(report: Document) -> Iterator[str]:
    changes, wordings = report["changes"], report["prompts"]
    for mark, name in _marked(changes["servers"]):
        tools = [f"{mark}{tool}" for mark, tool in _marked(changes["tools"].get(name, {}))]
        what = [*changes["details"].get(name, ()), *tools]
        yield f"{mark} server {name}" + (f": {', '.join(what)}" if what else "")
    for kind in ("agent", "team"):
        yield from (f"{mark} {kind} {name}" for mark, name in _marked(changes[f"{kind}s"]))
    for mark, name in _marked(changes["prompts"]):
        change = wordings.get(name)
        yield f"{mark} prompt {name}" + (f": {place(change['before'])} → {place(change['after'])}" if change else "")
    yield from (f"{mark} governance {name}" for mark, name in _marked(changes.get("governance", {})))


def _marked(names: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    for mark, kind in (("+", "added"), ("~", "changed"), ("-", "removed")):
        yield from ((mark, name) for name in names.get(kind, ()))


def _briefly(changes: Document) -> Iterator[str]:
    """Yield servers, custom agents and teams that changed; specialists follow from servers and are left out."""
    yield from (f"{mark}{name}" for mark, name in _marked(changes["servers"]))
    yield from (f"{mark}agent {name}" for mark, name in _marked(changes["agents"]) if "/" in name)
    yield from (f"{mark}team {name}" for mark, name in _marked(changes["teams"]))
    yield from (f"~prompt {name}" for name in changes["prompts"]["changed"])
    yield from (f"{mark}governance {name}" for mark, name in _marked(changes.get("governance", {})))
