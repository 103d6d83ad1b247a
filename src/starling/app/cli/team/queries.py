"""`starling team list`, `show`, `export`, `history`, `diff` and `schema`."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from starling.app.cli.options import Json, Tenant
from starling.app.cli.platform import late_imports
from starling.app.cli.platform.connection import connection_of
from starling.app.cli.team.arguments import (
    HASH_CHARS,
    PATH,
    Name,
    Versioned,
    chosen_version,
    split_version,
    team_path,
)
from starling.app.cli.terminal.build_text import print_lines, proof_report_lines, wrapped
from starling.app.cli.terminal.formats import counted, moment
from starling.app.cli.terminal.output import (
    print_fields,
    print_json,
    print_line,
    print_list,
    print_result,
    print_table,
    results,
)
from starling.client.api import Document
from starling.core.errors import InvalidRequestError
from starling.core.principal import DEFAULT_TENANT

app = typer.Typer(add_completion=False)

_DIFF_STYLES: Final = {"+": "green", "-": "red", "@": "cyan"}
_WIDE: Final = 120  # columns from which the changes of a team are shown as a table
_WITH_HASHES: Final = 80  # columns from which versions are shown with their hashes
_SHOWN: Final = ("state", "reason", "purpose")
_NOT_SHOWN: Final = frozenset({"version", "hash", "star"})  # of a change: they have a column, or say nothing


@app.command("list")
def list_teams(context: typer.Context, tenant: Tenant = DEFAULT_TENANT, as_json: Json = False) -> None:
    """List the teams of a tenant."""

    def cells(team: Document) -> tuple[str, ...]:
        lost = [f"{name}: {reason}" for name, reason in team["degraded_members"].items()]
        said = team["reason"] or (f"without {' '.join(lost)}" if lost else team["purpose"])
        return team["name"], team["state"] + _outdated(team), str(team["version"]), said

    api = connection_of(context).api(tenant)
    found = api.get(PATH)["teams"]
    empty = "There are no teams yet. `starling team build` and `starling team import` make one."
    print_list(found, ("NAME", "STATE", "VERSION", "PURPOSE"), cells, empty=empty, as_json=as_json)
    if not (found or as_json):
        print_line(f"Looked in {'the database' if api.in_process else api.url}.", "dim")


@app.command()
def show(
    context: typer.Context,
    team: Versioned,
    graph: Annotated[bool, typer.Option("--graph", help="Print its graph, members and servers, as JSON.")] = False,
    proof: Annotated[bool, typer.Option("--proof", help="Print the last proof of the version, case by case.")] = False,
    tenant: Tenant = DEFAULT_TENANT,
    as_json: Json = False,
) -> None:
    """Show a team with its members and versions, the last proof of a version, or its graph."""
    if graph and proof:
        raise InvalidRequestError("--graph and --proof can't be combined.", "Give one of them.")
    name, wanted = split_version(team)
    api = connection_of(context).api(tenant)
    if graph:
        print_json(api.get(team_path(name, "graph"), version=wanted))
        return
    versions = api.get(team_path(name, "versions"))["versions"]
    if proof:
        number = chosen_version(name, versions, wanted)["version"]
        report = api.get(team_path(name, "versions", str(number), "proof"))
        print_result(report, lambda: print_lines(proof_report_lines(f"{name}@{number}", report)), as_json=as_json)
        return
    found = api.get(team_path(name))
    shown = found if wanted is None else chosen_version(name, versions, wanted)
    if as_json:
        print_json({**found, "versions": versions} if wanted is None else shown)
    else:
        _print_team(found, versions) if wanted is None else _print_version(shown)


@app.command("export")
def export_team(
    context: typer.Context, team: Versioned, tenant: Tenant = DEFAULT_TENANT, as_json: Json = False
) -> None:
    """Print the spec of a team as YAML, or as JSON: of a version, else of the active, else of the newest one."""
    name, wanted = split_version(team)
    versions = connection_of(context).api(tenant).get(team_path(name, "versions"))["versions"]
    spec = chosen_version(name, versions, wanted)["spec"]
    if as_json:
        print_json(spec)
    else:
        typer.echo(late_imports.shortest_team(spec), nl=False)


@app.command()
def history(context: typer.Context, name: Name, tenant: Tenant = DEFAULT_TENANT, as_json: Json = False) -> None:
    """List who built, proved, approved, activated and archived a team, and when, oldest first."""
    changes = connection_of(context).api(tenant).get(team_path(name, "history"))["changes"]
    print_result(changes, lambda: _print_changes(changes), as_json=as_json)


@app.command()
def diff(
    context: typer.Context,
    name: Name,
    before: Annotated[int | None, typer.Argument(metavar="FROM", min=1, help="Default: the one before TO.")] = None,
    after: Annotated[int | None, typer.Argument(metavar="TO", min=1, help="Default: the newest version.")] = None,
    tenant: Tenant = DEFAULT_TENANT,
    as_json: Json = False,
) -> None:
    """Compare the specs of two versions."""
    found = connection_of(context).api(tenant).get(team_path(name, "diff"), **{"from": before, "to": after})
    if as_json:
        print_json(found)
        return
    if not found["diff"]:
        print_line(f"{name}@{found['from']} and {name}@{found['to']} are the same.")
    for line in found["diff"].splitlines():
        print_line(line, "bold" if line[:3] in ("+++", "---") else _DIFF_STYLES.get(line[:1]))


@app.command()
def schema(_: Json = False) -> None:
    """Print the JSON schema of team specs."""
    print_json(late_imports.team_schema())


def _print_team(team: Document, versions: Sequence[Document]) -> None:
    fields = {"team": f"{team['name']}@{team['version']}", **{name: team[name] for name in _SHOWN}}
    lists = {"used in": team.get("used_in", ()), "outdated": team.get("outdated_tools", ())}
    print_fields(fields | {name: ", ".join(texts) for name, texts in lists.items()}, 9)
    print_line("")
    rows = [(one["name"], _works_with(one), one["state"], one["reason"] or one["role"]) for one in team["members"]]
    print_table(("MEMBER", "WORKS WITH", "STATE", "ROLE"), rows)
    for name, reason in team["degraded_members"].items():
        if "/" in name:
            print_line(f"  ! {name}: {reason}", "yellow")
    print_line("")
    _print_versions(versions)


def _print_versions(versions: Sequence[Document]) -> None:
    """Print a table of versions; without their hashes, which `--json` has too, on a terminal that is too narrow."""
    with_hashes = not results().is_terminal or results().width >= _WITH_HASHES

    def cells(one: Document) -> Sequence[str]:
        hashes = (one["hash"][:HASH_CHARS], (one["star"] or "")[:HASH_CHARS]) if with_hashes else ()
        proof = one["proof"]["state"] + _outdated(one) if one.get("proof") else "none"
        return str(one["version"]), one["state"], moment(one["created_at"]), one["created_by"], *hashes, proof

    columns = ("VERSION", "STATE", "CREATED", "BY", *(("SPEC", "STAR") if with_hashes else ()), "PROOF")
    print_table(columns, map(cells, versions))


def _outdated(shown: Document) -> str:
    return ", outdated" if shown.get("outdated_tools") else ""


def _print_version(version: Document) -> None:
    _print_versions([version])
    for field in ("goal", "built_by"):
        if value := version.get(field):
            print_line(f"{field.replace('_', ' ')}: {' '.join(value.split())}")
    print_line("")
    print_line(late_imports.shortest_team(version["spec"]).rstrip())


def _works_with(member: Document) -> str:
    if member["team"]:
        return f"team {member['team']}"
    return f"{member['server']} ({counted(len(member['tools']), 'tool')})" if member["server"] else "nothing: it writes"


def _print_changes(changes: Sequence[Document]) -> None:
    """Print a table of audited changes; on a terminal that is too narrow for their details, two lines for each."""

    def cells(change: Document) -> tuple[str, ...]:
        detail: Mapping[str, Any] = change["detail"]
        said = ", ".join(
            f"{name.replace('_', ' ')} {value}"
            for name, value in detail.items()
            if name not in _NOT_SHOWN and value not in ("", None)
        )
        action = change["action"].removeprefix("team.")
        return moment(change["at"]), action, str(detail.get("version", "")), change["by"], change["origin"], said

    rows = [cells(change) for change in changes]
    if not results().is_terminal or results().width >= _WIDE:
        print_table(("AT", "ACTION", "VERSION", "BY", "FROM", "DETAILS"), rows)
        return
    for at, action, version, by, origin, details in rows:
        print_line(f"{at}  {action}{' ' if version else ''}{version}  by {by} from {origin}", "bold")
        for line in wrapped(f"  {details}", results().width) if details else ():
            print_line(line)
