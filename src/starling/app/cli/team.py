"""`starling team`: import, export, list, show, check, activate, roll back and archive teams."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import quote

import typer

from starling.app.cli import deferred
from starling.app.cli.api_requests import with_query
from starling.app.cli.connection import connection_of
from starling.app.cli.run_source import Document
from starling.app.cli.terminal.moments import moment
from starling.app.cli.terminal.output import print_json, print_line, print_table
from starling.core.errors import InvalidRequestError
from starling.core.principal import DEFAULT_TENANT

app = typer.Typer(add_completion=False, no_args_is_help=True)

_PATH: Final = "/v1/teams"
_HASH_CHARS = 12
INVALID = 2  # the exit code of a check with findings

_File = Annotated[Path, typer.Argument(help="A YAML or JSON file with the team's spec.")]
_Name = Annotated[str, typer.Argument(help="The team.")]
_Versioned = Annotated[str, typer.Argument(metavar="NAME[@VERSION]", help="The team, and one of its versions.")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_Tenant = Annotated[str, typer.Option(help="The tenant of the teams.")]


@app.callback()
def root() -> None:
    """Manage teams. Runs that have begun keep the versions that they began with."""


@app.command("import")
def import_team(
    context: typer.Context,
    file: _File,
    activate: Annotated[bool, typer.Option("--activate", help="Activate it at once.")] = False,
    tenant: _Tenant = DEFAULT_TENANT,
    as_json: _Json = False,
) -> None:
    """Store a spec as a new version of its team, a draft. What is wrong with it is printed, and nothing is stored."""
    spec, findings = _read(file)
    if findings:
        raise InvalidRequestError(f"{file} is no team spec.", "\n".join(map(_line, findings)))
    api = connection_of(context).api(tenant)
    done = api.post(_path(spec["name"], "versions"), {"spec": spec})
    if activate:
        done = {**done, **api.post(_path(spec["name"], "activate"), {"version": done["version"]}), "state": "active"}
    if as_json:
        print_json(done)
        return
    stored = "is stored" if done["created"] else "was stored before"
    print_line(f"{done['name']}@{done['version']} {stored}: {done['state']}, {done['hash'][:_HASH_CHARS]}.")
    if activate:
        _print_activated(done, tenant)
    elif done["state"] != "active":
        print_line(f"`{_activation(f'{done["name"]}@{done["version"]}', tenant)}` lets runs use it.")


@app.command("export")
def export_team(
    context: typer.Context, team: _Versioned, tenant: _Tenant = DEFAULT_TENANT, as_json: _Json = False
) -> None:
    """Print the spec of a team as YAML, or as JSON: of a version, else of the active, else of the newest one."""
    name, wanted = _split(team)
    versions = connection_of(context).api(tenant).get(_path(name, "versions"))["versions"]
    spec = _chosen(name, versions, wanted)["spec"]
    if as_json:
        print_json(spec)
    else:
        typer.echo(deferred.shortest_team(spec), nl=False)


@app.command("list")
def list_teams(context: typer.Context, tenant: _Tenant = DEFAULT_TENANT, as_json: _Json = False) -> None:
    """List the teams of a tenant."""
    found = connection_of(context).api(tenant).get(_PATH)["teams"]
    if as_json:
        print_json(found)
    elif found:
        print_table(("NAME", "STATE", "VERSION", "PURPOSE"), [_cells(team) for team in found])
    else:
        print_line("There are no teams yet. `starling team import FILE` makes one.")


@app.command()
def show(
    context: typer.Context,
    team: _Versioned,
    graph: Annotated[bool, typer.Option("--graph", help="Print its graph as Mermaid, with --json as JSON.")] = False,
    tenant: _Tenant = DEFAULT_TENANT,
    as_json: _Json = False,
) -> None:
    """Show a team with its members and versions, or its graph."""
    name, wanted = _split(team)
    api = connection_of(context).api(tenant)
    if graph:
        query: dict[str, str | int] = {"format": "json" if as_json else "mermaid"}
        query |= {} if wanted is None else {"version": wanted}
        _, content = api.send("GET", with_query(_path(name, "graph"), **query))
        typer.echo(content.decode().rstrip())
        return
    found, versions = api.get(_path(name)), api.get(_path(name, "versions"))["versions"]
    shown = found if wanted is None else _chosen(name, versions, wanted)
    if as_json:
        print_json({**found, "versions": versions} if wanted is None else shown)
    else:
        _print_team(found, versions) if wanted is None else _print_version(shown)


@app.command()
def schema(_: _Json = False) -> None:
    """Print the JSON schema of team specs."""
    print_json(deferred.team_schema())


@app.command()
def check(context: typer.Context, file: _File, tenant: _Tenant = DEFAULT_TENANT, as_json: _Json = False) -> None:
    """Say what is wrong with a spec, changing nothing. Exits with 0 if it can be imported, with 2 otherwise."""
    spec, findings = _read(file)
    found: Document = {"valid": False, "findings": findings}
    if not findings:
        found = connection_of(context).api(tenant).post(f"{_PATH}/check", {"spec": spec})
    if as_json:
        print_json(found)
    elif found["valid"]:
        print_line(f"{file} is in order.")
    for finding in () if as_json else found["findings"]:
        print_line(_line(finding))
    if not found["valid"]:
        raise typer.Exit(INVALID)


@app.command()
def activate(
    context: typer.Context, team: _Versioned, tenant: _Tenant = DEFAULT_TENANT, as_json: _Json = False
) -> None:
    """Let runs use a version, by default the newest. An earlier version is taken up again in the same way."""
    name, wanted = _split(team)
    done = connection_of(context).api(tenant).post(_path(name, "activate"), {"version": wanted})
    if as_json:
        print_json(done)
    else:
        _print_activated(done, tenant)


@app.command()
def rollback(context: typer.Context, name: _Name, tenant: _Tenant = DEFAULT_TENANT, as_json: _Json = False) -> None:
    """Activate the highest version before the active one that was active too, and not archived since."""
    done = connection_of(context).api(tenant).post(_path(name, "rollback"))
    if as_json:
        print_json(done)
    else:
        _print_activated(done, tenant)


@app.command()
def archive(context: typer.Context, name: _Name, tenant: _Tenant = DEFAULT_TENANT, as_json: _Json = False) -> None:
    """Archive a team: runs accepted from now on don't have it. Its versions are kept."""
    done = connection_of(context).api(tenant).post(_path(name, "archive"))
    if as_json:
        print_json(done)
        return
    print_line(f"{done['name']} is archived from epoch {done['epoch']} on.")
    _print_users(done, tenant)


def _path(name: str, *parts: str) -> str:
    return "/".join((_PATH, quote(name, safe=""), *parts))


def _read(file: Path) -> tuple[Document, Sequence[Document]]:
    """Return a spec as written, or what is wrong with its form. Raises InvalidRequestError for an unreadable file."""
    try:
        return deferred.read_team(file)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"{file} can't be read: {error}.", "Give a YAML or JSON file in UTF-8.") from None


def _line(finding: Document) -> str:
    place = f"{finding['path']}: " if finding["path"] else ""
    return f"{place}{finding['reason']} {finding['remedy']}"


def _split(team: str) -> tuple[str, int | None]:
    """Return name and version of `NAME@VERSION`. Raises InvalidRequestError."""
    name, at, version = team.partition("@")
    if at and not (version.isascii() and version.isdigit() and int(version)):
        raise InvalidRequestError(f"{version!r} is not a version of a team.", f"Write a number, as in {name}@1.")
    return name, int(version) if at else None


def _chosen(name: str, versions: Sequence[Document], wanted: int | None) -> Document:
    if wanted is None:
        return next((one for one in versions if one["state"] == "active"), versions[-1])
    found = next((one for one in versions if one["version"] == wanted), None)
    if found is None:
        known = ", ".join(str(one["version"]) for one in versions)
        remedy = f"It has the version{'s' if len(versions) > 1 else ''} {known}."
        raise InvalidRequestError(f"There is no version {wanted} of the team {name!r}.", remedy)
    return found


def _print_activated(done: Document, tenant: str) -> None:
    print_line(f"{done['name']}@{done['version']} is active from epoch {done['epoch']} on.")
    if done["left_out"]:
        left_out = ", ".join(done["left_out"])
        print_line(f"  ! without {left_out}: its creator or you may not call them.", "yellow")
    _print_users(done, tenant)


def _print_users(done: Document, tenant: str) -> None:
    for user in done["used_in"]:
        print_line(f"  ! {user} has it inside as it was: `{_activation(user, tenant)}` compiles it anew.", "yellow")


def _activation(version: str, tenant: str) -> str:
    """Return the command that activates a version, `name@version`, of a team of the tenant."""
    return f"starling team activate {version}{'' if tenant == DEFAULT_TENANT else f' --tenant {tenant}'}"


def _print_team(team: Document, versions: Sequence[Document]) -> None:
    shown = f"{team['name']}@{team['version']}"
    for field, value in {"team": shown, **_fields(team)}.items():
        if value:
            print_line(f"{field:<9} {value}")
    print_line("")
    rows = [(one["name"], _works_with(one), one["state"], one["reason"] or one["role"]) for one in team["members"]]
    print_table(("MEMBER", "WORKS WITH", "STATE", "ROLE"), rows)
    for name, reason in team["degraded_members"].items():
        if "/" in name:
            print_line(f"  ! {name}: {reason}", "yellow")
    print_line("")
    _print_versions(versions)


def _print_versions(versions: Sequence[Document]) -> None:
    made = [(str(one["version"]), one["state"], moment(one["created_at"]), one["created_by"]) for one in versions]
    hashes = [(one["hash"][:_HASH_CHARS], (one["star"] or "")[:_HASH_CHARS]) for one in versions]
    print_table(
        ("VERSION", "STATE", "IMPORTED", "BY", "SPEC", "STAR"),
        [(*row, *pair) for row, pair in zip(made, hashes, strict=True)],
    )


def _print_version(version: Document) -> None:
    _print_versions([version])
    print_line("")
    print_line(deferred.shortest_team(version["spec"]).rstrip())


def _fields(team: Document) -> Mapping[str, str]:
    return {field: team[field] for field in ("state", "reason", "purpose")}


def _works_with(member: Document) -> str:
    if member["team"]:
        return f"team {member['team']}"
    if member["server"] is None:
        return "nothing: it writes"
    count = len(member["tools"])
    return f"{member['server']} ({count} tool{'' if count == 1 else 's'})"


def _cells(team: Document) -> tuple[str, ...]:
    lost = [f"{name}: {reason}" for name, reason in team["degraded_members"].items()]
    said = team["reason"] or (f"without {' '.join(lost)}" if lost else team["purpose"])
    return team["name"], team["state"], str(team["version"]), said
