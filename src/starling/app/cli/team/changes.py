"""`starling team import`, `check`, `activate`, `rollback` and `archive`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from starling.app.cli.options import Json, Tenant, Yes
from starling.app.cli.platform import late_imports
from starling.app.cli.platform.connection import connection_of
from starling.app.cli.team.arguments import (
    HASH_CHARS,
    PATH,
    File,
    Name,
    Versioned,
    finding_line,
    split_version,
    team_path,
    unreadable,
)
from starling.app.cli.terminal.output import print_json, print_line, print_result
from starling.app.cli.terminal.prompts import confirmed, has_person
from starling.client.api import Api, Document
from starling.core.errors import InvalidRequestError
from starling.core.principal import DEFAULT_TENANT

app = typer.Typer(add_completion=False)

FAILED: Final = 1
INVALID: Final = 2  # the exit code of a check with findings


@app.command("import")
def import_team(
    context: typer.Context,
    file: File,
    activate: Annotated[bool, typer.Option("--activate", help="Activate it at once.")] = False,
    tenant: Tenant = DEFAULT_TENANT,
    as_json: Json = False,
) -> None:
    """Store a spec as a new version of its team, a draft. What is wrong with it is printed, and nothing is stored."""
    spec, findings = _read(file)
    if findings:
        raise InvalidRequestError(f"{file} is not a team spec.", "\n".join(map(finding_line, findings)))
    api = connection_of(context).api(tenant)
    done = api.post(team_path(spec["name"], "versions"), {"spec": spec})
    if activate:
        done = {**done, **api.post(team_path(spec["name"], "activate"), {"version": done["version"]})}
        done["state"] = "active"
    if as_json:
        print_json(done)
        return
    stored = "is stored" if done["created"] else "was stored before"
    print_line(f"{done['name']}@{done['version']} {stored}: {done['state']}, {done['hash'][:HASH_CHARS]}.")
    if activate:
        _print_activated(done, tenant)
        return
    _print_notes(done)
    if done["state"] != "active":
        print_line(f"`{_activation(f'{done["name"]}@{done["version"]}', tenant)}` lets runs use it.")


@app.command()
def check(context: typer.Context, file: File, tenant: Tenant = DEFAULT_TENANT, as_json: Json = False) -> None:
    """Say what is wrong with a spec, changing nothing. Exits with 0 if it can be imported, with 2 otherwise."""
    spec, findings = _read(file)
    found: Document = {"valid": False, "findings": findings}
    if not findings:
        found = connection_of(context).api(tenant).post(f"{PATH}/check", {"spec": spec})
    if as_json:
        print_json(found)
    elif found["valid"]:
        print_line(f"{file} is in order.")
        _print_notes(found)
    for finding in () if as_json else found["findings"]:
        print_line(finding_line(finding))
    if not found["valid"]:
        raise typer.Exit(INVALID)


@app.command()
def activate(
    context: typer.Context, team: Versioned, yes: Yes = False, tenant: Tenant = DEFAULT_TENANT, as_json: Json = False
) -> None:
    """Let runs use a version, by default the newest. An earlier version is taken up again in the same way.

    On a terminal it asks first where the version is unproven, was never tried, or its tools changed since its proof.
    """
    name, wanted = split_version(team)
    api = connection_of(context).api(tenant)
    if has_person() and not (yes or as_json):
        versions = api.get(team_path(name, "versions"))["versions"]
        _ask_if_in_doubt(api, name, [one for one in versions if wanted in (None, one["version"])])
    done = api.post(team_path(name, "activate"), {"version": wanted})
    print_result(done, lambda: _print_activated(done, tenant), as_json=as_json)


@app.command()
def rollback(
    context: typer.Context, name: Name, yes: Yes = False, tenant: Tenant = DEFAULT_TENANT, as_json: Json = False
) -> None:
    """Activate the highest version before the active one that was active too, and not archived since.

    On a terminal it asks first where that version is unproven, was never tried, or its tools changed since its proof.
    """
    api = connection_of(context).api(tenant)
    if has_person() and not (yes or as_json):
        versions: Sequence[Document] = api.get(team_path(name, "versions"))["versions"]
        active = next((one["version"] for one in versions if one["state"] == "active"), 0)
        _ask_if_in_doubt(
            api, name, [one for one in versions if one["version"] < active and one["state"] == "superseded"]
        )
    done = api.post(team_path(name, "rollback"))
    print_result(done, lambda: _print_activated(done, tenant), as_json=as_json)


@app.command()
def archive(
    context: typer.Context, name: Name, yes: Yes = False, tenant: Tenant = DEFAULT_TENANT, as_json: Json = False
) -> None:
    """Archive a team: runs accepted from now on don't have it. Its versions are kept.

    On a terminal it names the active teams that have it inside, and asks, before anything is changed.
    """
    api = connection_of(context).api(tenant)
    if has_person() and not (yes or as_json):
        users = api.get(team_path(name)).get("used_in", ())
        for user in users:
            print_line(f"{user} keeps it inside as it was, and can't be activated anew without it.", "yellow")
        if users:
            _ask(f"Archive {name}?")
    done = api.post(team_path(name, "archive"))
    if as_json:
        print_json(done)
        return
    print_line(f"{done['name']} is archived from epoch {done['epoch']} on.")
    for user in done["used_in"]:
        print_line(f"  ! {user} keeps it inside as it was, and can't be activated anew without it.", "yellow")


def _ask_if_in_doubt(api: Api, name: str, versions: Sequence[Document]) -> None:
    """Ask about the last of these versions if it is not proven, or tools changed since its proof; exit for a no."""
    if not versions:
        return
    version = f"{name}@{versions[-1]['version']}"
    tools = versions[-1].get("outdated_tools")
    doubts = [f"Changed since {version} was proved: {', '.join(tools)}."] if tools else []
    if not (proof := versions[-1].get("proof")):
        doubts.append(f"{version} was never tried: it has no proof.")
    elif proof["state"] == "unproven":
        proof = api.get(team_path(name, "versions", str(versions[-1]["version"]), "proof"))
        doubts += [f"{version} is not proven.", *proof["not_judged"]]
    for doubt in doubts:
        print_line(doubt, "yellow")
    if doubts:
        _ask(f"Activate {version}?")


def _ask(question: str) -> None:
    """Exit with 1 unless the answer is yes."""
    if not confirmed(question, yes=False, quiet=False, otherwise=""):
        print_line("Nothing was changed.")
        raise typer.Exit(FAILED)


def _read(file: Path) -> tuple[Document, Sequence[Document]]:
    """Return a spec as written, or what is wrong with its form. Raises InvalidRequestError for an unreadable file."""
    with unreadable(file):
        specs, findings = late_imports.read_team_file(file)
    return specs[0] if specs else {}, findings


def _print_activated(done: Document, tenant: str) -> None:
    print_line(f"{done['name']}@{done['version']} is active from epoch {done['epoch']} on.")
    if done["left_out"]:
        left_out = ", ".join(done["left_out"])
        print_line(f"  ! without {left_out}: its creator or you may not call them.", "yellow")
    if changed := done.get("outdated_tools"):
        again = f"`starling team prove {done['name']}@{done['version']}`"
        print_line(f"  ! changed since it was proved: {', '.join(changed)}; {again} proves it again.", "yellow")
    for doubt in done.get("not_judged", ()):
        print_line(f"  ! {doubt}", "yellow")
    _print_notes(done)
    for user in done["used_in"]:
        print_line(f"  ! {user} has it inside as it was: `{_activation(user, tenant)}` compiles it anew.", "yellow")


def _print_notes(done: Document) -> None:
    for note in done.get("notes", ()):
        print_line(f"  ! {finding_line(note)}", "yellow")


def _activation(version: str, tenant: str) -> str:
    """Return the command that activates a version, `name@version`, of a team of the tenant."""
    return f"starling team activate {version}{'' if tenant == DEFAULT_TENANT else f' --tenant {tenant}'}"
