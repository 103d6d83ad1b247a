"""`starling registry`: list, plan, reload and roll back epochs."""

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from brain.registry.manifest_diff import Changes, Names
from brain.registry.repository import EpochRecord
from mcp_gateway.config import McpConfig, read_config
from starling.app.cli.command_settings import settings_of, with_servers_found_here
from starling.app.cli.signals import run_until_stopped
from starling.app.cli.terminal.moments import moment
from starling.app.cli.terminal.output import print_json, print_line, print_table, progress
from starling.app.container.services import Services, open_services
from starling.app.registry.service import Report
from starling.app.runtime.database import find_database
from starling.core.errors import ConfigurationError
from starling.core.settings import Settings
from starling.infra.postgres.audit import Actor

CHANGES = 10  # the exit code of a plan that isn't empty

app = typer.Typer(add_completion=False, no_args_is_help=True)

_File = Annotated[
    Path | None, typer.Option(help="An mcpServers file; default: STARLING_MCP_CONFIG, then mcp.json in this folder.")
]
_Relist = Annotated[bool, typer.Option("--relist", help="Also list the tools of unchanged servers again.")]
_AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.callback()
def root() -> None:
    """Change which servers runs use. Runs that have begun keep the epoch that they began with."""


@app.command("list")
def list_epochs(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many, newest first.")] = 20,
    utc: Annotated[bool, typer.Option("--utc", help="Show times in UTC instead of the local time zone.")] = False,
    as_json: _AsJson = False,
) -> None:
    """List the epochs: who made each and when, what changed, and how many runs use it."""
    found = run_until_stopped(_with(settings_of(context), lambda services: services.epochs.latest(limit)))
    if as_json:
        print_json([_document(record) for record in found])
    elif found:
        print_table(
            ("EPOCH", "STATE", "MADE", "BY", "RUNS", "WHAT CHANGED"), [_cells(record, utc=utc) for record in found]
        )
    else:
        print_line("There is no epoch yet. `starling up` or `starling registry reload` makes one.")


@app.command()
def plan(context: typer.Context, mcp_config: _File = None, relist: _Relist = False, as_json: _AsJson = False) -> None:
    """Show what a reload would change, without changing anything.

    New and changed servers are started and listed. Exits with 0 if nothing would change, with 10 otherwise.
    """
    settings = settings_of(context)
    config = _config(settings, mcp_config)
    with progress("Listing new and changed servers …"):
        report = run_until_stopped(_with(settings, lambda services: services.registry.plan(config, relist=relist)))
    _print_report(report, f"A reload would make of epoch {report.epoch}:", as_json=as_json)
    if report.changes:
        raise typer.Exit(CHANGES)


@app.command()
def reload(context: typer.Context, mcp_config: _File = None, relist: _Relist = False, as_json: _AsJson = False) -> None:
    """Replace the servers that came from files by those of this file, in every process. `plan` shows the changes.

    Servers added with `starling server add` are kept.
    """
    settings = settings_of(context)
    config, actor = _config(settings, mcp_config), Actor.local("cli")
    with progress("Listing new and changed servers …"):
        report = run_until_stopped(
            _with(settings, lambda services: services.registry.reload(config, actor, relist=relist))
        )
    _print_report(report, f"Epoch {report.epoch} is active:", as_json=as_json)


@app.command()
def rollback(
    context: typer.Context,
    number: Annotated[
        int | None,
        typer.Argument(
            min=1, max=2**63 - 1, help="The epoch to go back to; default: the one before servers last changed."
        ),
    ] = None,
    as_json: _AsJson = False,
) -> None:
    """Make a new epoch with the servers of an earlier one. Tenants keep their agents.

    The next start or reload reads the file again and applies it.
    """
    actor = Actor.local("cli")
    report = run_until_stopped(_with(settings_of(context), lambda services: services.registry.rollback(number, actor)))
    _print_report(report, f"Epoch {report.epoch} is active:", as_json=as_json)


async def _with[Found](settings: Settings, ask: Callable[[Services], Awaitable[Found]]) -> Found:
    logging.getLogger("mcp_gateway.catalog").setLevel(logging.ERROR)  # the report has the same warnings
    async with open_services(settings, find_database(settings)) as services:
        return await ask(services)


def _config(settings: Settings, given: Path | None) -> McpConfig:
    file = given or with_servers_found_here(settings).mcp_config
    if file is None:
        raise ConfigurationError(
            "There is no mcpServers file to read.", "Name one with --mcp-config, or write mcp.json in this folder."
        )
    return read_config(file)


def _print_report(report: Report, headline: str, *, as_json: bool) -> None:
    if as_json:
        changes = report.changes.model_dump(mode="json")
        wrong = {"warnings": dict(report.warnings), "broken_agents": dict(report.broken_agents)}
        print_json({"epoch": report.epoch, "changes": changes, **wrong})
        return
    found = list(_lines(report.changes))
    print_line(headline if found else f"Nothing to change: epoch {report.epoch} says the same.")
    for line in found:
        print_line(f"  {line}")
    for server, why in report.warnings.items():
        print_line(f"  ! {server}: {why}", "yellow")
    for agent, why in report.broken_agents.items():
        print_line(f"  ! agent {agent} can't work then: {why}", "yellow")


def _lines(changes: Changes) -> Iterator[str]:
    for mark, name in _marked(changes.servers):
        what = [*changes.details.get(name, ()), *_tools(changes.tools.get(name, Names()))]
        yield f"{mark} server {name}" + (f": {', '.join(what)}" if what else "")
    for kind, names in (("agent", changes.agents), ("team", changes.teams), ("prompt", changes.prompts)):
        yield from (f"{mark} {kind} {name}" for mark, name in _marked(names))
    yield from (f"! team {name} would break" for name in changes.broken_teams)


def _marked(names: Names) -> Iterator[tuple[str, str]]:
    yield from (("+", name) for name in names.added)
    yield from (("~", name) for name in names.changed)
    yield from (("-", name) for name in names.removed)


def _tools(names: Names) -> list[str]:
    return [f"{mark}{name}" for mark, name in _marked(names)]


def _document(record: EpochRecord) -> dict[str, Any]:
    return asdict(record) | {"changes": record.changes.model_dump(mode="json")}


def _cells(record: EpochRecord, *, utc: bool) -> Sequence[str]:
    state = "active" if record.active else "closed" if record.closed_at else "held" if record.runs else "open"
    made = moment(record.created_at, utc=utc)
    what = ", ".join(_briefly(record.changes))
    return str(record.number), state, made, f"{record.actor}, {record.origin}", str(record.runs), what


def _briefly(changes: Changes) -> Iterator[str]:
    """Yield servers, custom agents and teams that changed; specialists follow from servers and are left out."""
    yield from (f"{mark}{name}" for mark, name in _marked(changes.servers))
    yield from (f"{mark}agent {name}" for mark, name in _marked(changes.agents) if "/" in name)
    yield from (f"{mark}team {name}" for mark, name in _marked(changes.teams))
    yield from (f"~prompt {name}" for name in changes.prompts.changed)
