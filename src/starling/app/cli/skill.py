"""`starling skill`: list, show and search skills; retire, restore, delete, export and import them."""

import sys
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from starling.app.cli.completion import SKILLS
from starling.app.cli.id_name import find_id
from starling.app.cli.options import Best, Full, Json, Latest, Reason, Tenant, Utc
from starling.app.cli.platform.connection import connection_of
from starling.app.cli.terminal.formats import moment, short_ids
from starling.app.cli.terminal.output import (
    escaped,
    print_fields,
    print_json,
    print_line,
    print_list,
    print_part,
    print_result,
    print_table,
)
from starling.client.api import Api, Document, path_of
from starling.core.errors import InvalidRequestError
from starling.core.json import canonical
from starling.core.principal import DEFAULT_TENANT
from starling.core.text import one_line

app = typer.Typer(add_completion=False, no_args_is_help=True)

_PATH: Final = "/v1/skills"
_PAGE: Final = 200
_TEMPLATE_CHARS: Final = 80
_IMPORT_SECONDS: Final = 600.0
_REMEDY: Final = "`starling skill list` shows the ids."
_ID: Final = "Its id, or at least 4 characters of its end."
_Skill = Annotated[str, typer.Argument(help=_ID, autocompletion=SKILLS)]
_State = Annotated[
    Literal["active", "suspended", "retired", "quarantined"] | None, typer.Option(help="Only skills in this state.")
]
_Agent = Annotated[str | None, typer.Option(help="Only skills of this agent's tasks.")]


@app.callback()
def root() -> None:
    """Manage skills: solved tasks that are recalled for similar ones."""


@app.command("list")
def list_skills(  # noqa: PLR0913, PLR0917 - its options
    context: typer.Context,
    limit: Latest = 20,
    state: _State = None,
    agent: _Agent = None,
    tenant: Tenant = DEFAULT_TENANT,
    full: Full = False,
    utc: Utc = False,
    as_json: Json = False,
) -> None:
    """List the latest skills with their record. Other commands take the short ids shown here."""
    query = {"state": state, "agent": agent}
    found = list(connection_of(context).api(tenant).pages(_PATH, "skills", query, most=_PAGE, limit=limit))
    ids = [skill["id"] for skill in found]
    shown = dict(zip(ids, ids if full else short_ids(ids), strict=True))

    def cells(skill: Document) -> tuple[str, ...]:
        return (
            shown[skill["id"]],
            skill["state"],
            moment(skill["created_at"], utc=utc),
            skill["agent"],
            *(str(skill[name]) for name in ("uses", "successes", "failures")),
            skill["template"] if full else one_line(skill["template"], _TEMPLATE_CHARS),
        )

    columns = ("SKILL", "STATE", "STORED", "AGENT", "USES", "SUCCESSES", "FAILURES", "TASK")
    empty = "There are no skills yet. A task that was solved with tools and approved makes one."
    print_list(found, columns, cells, empty="There are no such skills." if state or agent else empty, as_json=as_json)


@app.command()
def show(
    context: typer.Context, skill: _Skill, tenant: Tenant = DEFAULT_TENANT, utc: Utc = False, as_json: Json = False
) -> None:
    """Show a skill: its task, its calls, its record, and the further tasks that it solved."""
    api = connection_of(context).api(tenant)
    found = api.get(_path(api, skill))
    if as_json:
        print_json(found)
        return
    shown = found["skill"]
    by = f" by {shown['shared_by']}" if shown["shared_by"] else ""
    if shown["source_run"]:
        by = f" {shown['source_run']}, task {shown['source_path']}"
    used = f", last {moment(shown['last_used_at'], utc=utc)}" if shown["last_used_at"] else ""
    fields = {field: shown[field] for field in ("id", "state", "reason", "task", "template", "agent")} | {
        "origin": f"{shown['provenance']}{by}",
        "stored": moment(shown["created_at"], utc=utc),
        "uses": f"{shown['uses']}{used}; successes {shown['successes']}, failures {shown['failures']}",
    }
    print_fields(fields, 10)
    print_part("Calls", [f"{call['tool']} {canonical(call['arguments'])}" for call in shown["calls"]])
    print_part("Code", shown["code"].splitlines())
    print_part("Further tasks", [example["task"] for example in found["examples"]])
    print_part("Result", shown["outcome"].splitlines())


@app.command()
def search(
    context: typer.Context,
    text: Annotated[str, typer.Argument(help="The text of a task.")],
    agent: Annotated[str | None, typer.Option(help="The agent that would get the task.")] = None,
    limit: Best = 10,
    tenant: Tenant = DEFAULT_TENANT,
    as_json: Json = False,
) -> None:
    """Show how skills compare with a task, with the parts of their scores, and which of them it would recall."""
    found = connection_of(context).api(tenant).get(f"{_PATH}/search", query=text, limit=limit, agent=agent)
    if as_json:
        print_json(found)
        return
    if found["warning"]:
        typer.echo(f"warning: {found['warning']}", err=True)
    if not found["skills"]:
        print_line("There is no active skill to compare with.")
        return
    reached = "at least" if found["certainty"] >= found["cut"] else "less than"
    print_line(
        f"{len(found['skills'])} of {found['total']} skills; certainty {found['certainty']:.2f}, "
        f"{reached} {found['cut']:.2f}"
    )
    ids = short_ids([match["skill"]["id"] for match in found["skills"]])
    rows = [
        (
            shown,
            "yes" if match["recalled"] else "no",
            *(f"{score:.2f}" for score in (match["similarity"], *match["parts"].values())),
            one_line(match["skill"]["template"], _TEMPLATE_CHARS),
        )
        for shown, match in zip(ids, found["skills"], strict=True)
    ]
    print_table(("SKILL", "RECALLED", "SIMILARITY", "CHARACTERS", "MEANING", "TASK"), rows)


@app.command()
def retire(
    context: typer.Context, skill: _Skill, reason: Reason, tenant: Tenant = DEFAULT_TENANT, as_json: Json = False
) -> None:
    """Take a skill out of use."""
    api = connection_of(context).api(tenant)
    _print_changed(api.post(f"{_path(api, skill)}/retire", {"reason": reason}), as_json=as_json)


@app.command()
def restore(context: typer.Context, skill: _Skill, tenant: Tenant = DEFAULT_TENANT, as_json: Json = False) -> None:
    """Take a retired or quarantined skill into use again; its uses, successes and failures are counted anew."""
    api = connection_of(context).api(tenant)
    _print_changed(api.post(f"{_path(api, skill)}/restore"), as_json=as_json)


@app.command()
def delete(
    context: typer.Context,
    skills: Annotated[list[str], typer.Argument(metavar="SKILL…", help=_ID, autocompletion=SKILLS)],
    tenant: Tenant = DEFAULT_TENANT,
) -> None:
    """Delete skills with their further tasks."""
    api = connection_of(context).api(tenant)
    for path in [_path(api, skill) for skill in skills]:
        api.delete(path)
        print_line(f"Skill {path.rpartition('/')[2]} was deleted.")


@app.command()
def export(
    context: typer.Context,
    file: Annotated[Path | None, typer.Argument(help="The file to write; default: standard output.")] = None,
    state: _State = None,
    agent: _Agent = None,
    tenant: Tenant = DEFAULT_TENANT,
) -> None:
    """Write skills as JSON lines: active and suspended ones, or those of the chosen state."""
    query = {"state": state, "agent": agent}
    api = connection_of(context).api(tenant)
    content = escaped(api.send("GET", f"{_PATH}/export", query=query, seconds=_IMPORT_SECONDS).text)
    if file is None:
        sys.stdout.write(content)
        return
    try:
        file.write_text(content, "utf-8")
    except OSError as error:
        raise InvalidRequestError(f"{file} can't be written: {error}.", "Name another file.") from None
    print_line(f"Skills written to {file}: {content.count('\n')}.")


@app.command("import")
def import_skills(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="A file that `starling skill export` wrote.")],
    tenant: Annotated[str | None, typer.Option(help="The tenant that gets the skills; default: your own.")] = None,
    as_json: Json = False,
) -> None:
    """Store the skills of a file, all or none of them. Texts that try to instruct are quarantined."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise InvalidRequestError(f"{file} can't be read: {error}.", "Give a file of JSON lines.") from None
    made = connection_of(context).api().post(f"{_PATH}/import", content, seconds=_IMPORT_SECONDS, tenant=tenant)
    if as_json:
        print_json(made)
        return
    for line in made["lines"]:
        state = f", {line['state']}" if line["state"] else ""
        reason = f": {line['reason']}" if line["reason"] else ""
        print_line(f"line {line['line']}: {line['outcome']}, {line['id']}{state}{reason}")


def _path(api: Api, name: str) -> str:
    """Return the path of the skill that a command names. Raises InvalidRequestError, NotFoundError."""

    def ending_in(ending: str) -> list[str]:
        return [skill["id"] for skill in api.get(_PATH, ending=ending, limit=2)["skills"]]

    return path_of("skills", find_id("skill", name, ending_in, remedy=_REMEDY))


def _print_changed(skill: Document, *, as_json: bool) -> None:
    reason = f": {skill['reason']}" if skill["reason"] else "."
    print_result(skill, f"Skill {skill['id']} is {skill['state']}{reason}", as_json=as_json)
