"""`starling skill`: list, show and search skills; retire, restore, export and import them."""

import sys
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import quote

import typer

from starling.app.cli.id_name import LISTED, IdNames
from starling.app.cli.platform.api_requests import Api, with_query
from starling.app.cli.platform.connection import connection_of
from starling.app.cli.platform.run_source import Document
from starling.app.cli.terminal.moments import moment
from starling.app.cli.terminal.output import print_json, print_line, print_table
from starling.app.cli.terminal.short_ids import short_ids
from starling.core.errors import InvalidRequestError
from starling.core.json import canonical
from starling.core.principal import DEFAULT_TENANT

app = typer.Typer(add_completion=False, no_args_is_help=True)

_PATH: Final = "/v1/skills"
_PAGE: Final = 200
_TEMPLATE_CHARS: Final = 80
_IMPORT_SECONDS: Final = 600.0
_REMEDY: Final = "`starling skill list` shows the ids."


class State(StrEnum):
    """The states of skills."""

    ACTIVE = "active"
    SUSPENDED = "suspended"
    RETIRED = "retired"
    QUARANTINED = "quarantined"


_Skill = Annotated[str, typer.Argument(help="The skill: its id, or at least 4 characters of the end of its id.")]
_State = Annotated[State | None, typer.Option(help="Only skills in this state.")]
_Agent = Annotated[str | None, typer.Option(help="Only skills of this agent's tasks.")]
_Tenant = Annotated[str, typer.Option(help="The tenant of the skills.")]
_Utc = Annotated[bool, typer.Option("--utc", help="Show times in UTC instead of the local time zone.")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.callback()
def root() -> None:
    """Manage skills: solved tasks that are recalled for similar ones."""


@app.command("list")
def list_skills(  # noqa: PLR0913, PLR0917 - its options
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many, latest first.")] = 20,
    state: _State = None,
    agent: _Agent = None,
    tenant: _Tenant = DEFAULT_TENANT,
    full: Annotated[bool, typer.Option("--full", help="Show whole ids and tasks.")] = False,
    utc: _Utc = False,
    as_json: _Json = False,
) -> None:
    """List the latest skills with their record. Other commands take the short ids shown here."""
    found = list(_listed(connection_of(context).api(tenant), limit, _chosen(state, agent)))
    if as_json:
        print_json(found)
    elif found:
        print_table(
            ("SKILL", "STATE", "STORED", "AGENT", "USES", "SUCCESSES", "FAILURES", "TASK"),
            _rows(found, full=full, utc=utc),
        )
    elif state or agent:
        print_line("There are no such skills.")
    else:
        print_line("There are no skills yet. A task that was solved with tools and approved makes one.")


@app.command()
def show(
    context: typer.Context,
    skill: _Skill,
    tenant: _Tenant = DEFAULT_TENANT,
    utc: _Utc = False,
    as_json: _Json = False,
) -> None:
    """Show a skill: its task, its calls, its record, and the further tasks that it solved."""
    api = connection_of(context).api(tenant)
    found = api.get(_path(api, skill))
    if as_json:
        print_json(found)
        return
    for field, value in _fields(found["skill"], utc=utc):
        print_line(f"{field:<10} {value}")
    _print_part("Calls", [f"{call['tool']} {canonical(call['arguments'])}" for call in found["skill"]["calls"]])
    _print_part("Code", found["skill"]["code"].splitlines())
    _print_part("Further tasks", [example["task"] for example in found["examples"]])
    _print_part("Result", found["skill"]["outcome"].splitlines())


@app.command()
def search(
    context: typer.Context,
    text: Annotated[str, typer.Argument(help="The text of a task.")],
    agent: Annotated[str | None, typer.Option(help="The agent that would get the task.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=200, help="How many of the best skills.")] = 10,
    tenant: _Tenant = DEFAULT_TENANT,
    as_json: _Json = False,
) -> None:
    """Show how skills compare with a task, with the parts of their scores, and which of them it would recall."""
    query: dict[str, str | int] = {"query": text, "limit": limit, **({"agent": agent} if agent else {})}
    found = connection_of(context).api(tenant).get(f"{_PATH}/search", **query)
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
    print_table(("SKILL", "RECALLED", "SIMILARITY", "CHARACTERS", "MEANING", "TASK"), _ranked(found["skills"]))


@app.command()
def retire(
    context: typer.Context,
    skill: _Skill,
    reason: Annotated[str, typer.Option(help="The reason.")],
    tenant: _Tenant = DEFAULT_TENANT,
    as_json: _Json = False,
) -> None:
    """Take a skill out of use."""
    api = connection_of(context).api(tenant)
    _print_changed(api.post(f"{_path(api, skill)}/retire", {"reason": reason}), as_json=as_json)


@app.command()
def restore(context: typer.Context, skill: _Skill, tenant: _Tenant = DEFAULT_TENANT, as_json: _Json = False) -> None:
    """Take a retired or quarantined skill into use again; its successes and failures are counted anew."""
    api = connection_of(context).api(tenant)
    _print_changed(api.post(f"{_path(api, skill)}/restore"), as_json=as_json)


@app.command()
def export(
    context: typer.Context,
    file: Annotated[Path | None, typer.Argument(help="The file to write; default: standard output.")] = None,
    state: _State = None,
    agent: _Agent = None,
    tenant: _Tenant = DEFAULT_TENANT,
) -> None:
    """Write skills as JSON lines: active and suspended ones, or those of the chosen state."""
    query = with_query(f"{_PATH}/export", **_chosen(state, agent))
    _, content = connection_of(context).api(tenant).send("GET", query, seconds=_IMPORT_SECONDS)
    if file is None:
        sys.stdout.write(content.decode())
        return
    try:
        file.write_bytes(content)
    except OSError as error:
        raise InvalidRequestError(f"{file} can't be written: {error}.", "Name another file.") from None
    print_line(f"Skills written to {file}: {content.count(b'\n')}.")


@app.command("import")
def import_skills(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="A file that `starling skill export` wrote.")],
    tenant: Annotated[str | None, typer.Option(help="The tenant that gets the skills; default: your own.")] = None,
    as_json: _Json = False,
) -> None:
    """Store the skills of a file, all or none of them. Texts that try to instruct are quarantined."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise InvalidRequestError(f"{file} can't be read: {error}.", "Give a file of JSON lines.") from None
    path = with_query(f"{_PATH}/import", **({"tenant": tenant} if tenant else {}))
    made = connection_of(context).api().post(path, content, seconds=_IMPORT_SECONDS)
    if as_json:
        print_json(made)
        return
    for line in made["lines"]:
        state = f", {line['state']}" if line["state"] else ""
        reason = f": {line['reason']}" if line["reason"] else ""
        print_line(f"line {line['line']}: {line['outcome']}, {line['id']}{state}{reason}")


def _listed(api: Api, limit: int, query: dict[str, str]) -> Iterator[Document]:
    """Yield the latest skills, page by page."""
    wanted: dict[str, str | int] = dict(query)
    while limit > 0:
        page = api.get(_PATH, **wanted, limit=min(_PAGE, limit))
        yield from page["skills"]
        if page["next"] is None:
            return
        wanted["before"], limit = page["next"], limit - _PAGE


def _chosen(state: State | None, agent: str | None) -> dict[str, str]:
    given = {"state": state and state.value, "agent": agent}
    return {name: value for name, value in given.items() if value is not None}


def _path(api: Api, name: str) -> str:
    """Return the path of the skill that a command names. Raises InvalidRequestError, NotFoundError."""

    def ending_in(ending: str) -> Sequence[Document]:
        return api.get(_PATH, ending=ending, limit=LISTED + 1)["skills"]

    return f"{_PATH}/{quote(_SKILLS.find(name, ending_in), safe='')}"


def _described(skill: Document) -> str:
    return f"{skill['state']}: {_line(skill['template'])}"


_SKILLS: Final = IdNames("skill", _REMEDY, _described)


def _rows(found: Sequence[Document], *, full: bool, utc: bool) -> list[tuple[str, ...]]:
    ids = [skill["id"] for skill in found]
    return [
        (
            shown,
            skill["state"],
            moment(skill["created_at"], utc=utc),
            skill["agent"],
            *(str(skill[name]) for name in ("uses", "successes", "failures")),
            skill["template"] if full else _line(skill["template"]),
        )
        for shown, skill in zip(ids if full else short_ids(ids), found, strict=True)
    ]


def _ranked(found: Sequence[Document]) -> list[tuple[str, ...]]:
    ids = short_ids([match["skill"]["id"] for match in found])
    return [
        (
            shown,
            "yes" if match["recalled"] else "no",
            *(f"{score:.2f}" for score in (match["similarity"], *match["parts"].values())),
            _line(match["skill"]["template"]),
        )
        for shown, match in zip(ids, found, strict=True)
    ]


def _fields(skill: Document, *, utc: bool) -> Iterator[tuple[str, str]]:
    """Yield what `show` prints, a line each."""
    yield from ((field, skill[field]) for field in ("id", "state"))
    if skill["reason"]:
        yield "reason", skill["reason"]
    yield from ((field, skill[field]) for field in ("task", "template", "agent"))
    yield "origin", _origin(skill)
    yield "stored", moment(skill["created_at"], utc=utc)
    used = f", last {moment(skill['last_used_at'], utc=utc)}" if skill["last_used_at"] else ""
    yield "uses", f"{skill['uses']}{used}; successes {skill['successes']}, failures {skill['failures']}"


def _origin(skill: Document) -> str:
    if skill["source_run"]:
        return f"{skill['provenance']} {skill['source_run']}, task {skill['source_path']}"
    return f"{skill['provenance']} by {skill['shared_by']}" if skill["shared_by"] else skill["provenance"]


def _print_part(title: str, lines: Sequence[str]) -> None:
    if lines:
        print_line(title, "bold")
    for line in lines:
        print_line(f"  {line}")


def _print_changed(skill: Any, *, as_json: bool) -> None:
    if as_json:
        print_json(skill)
        return
    reason = f": {skill['reason']}" if skill["reason"] else "."
    print_line(f"Skill {skill['id']} is {skill['state']}{reason}")


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _TEMPLATE_CHARS else f"{line[: _TEMPLATE_CHARS - 1]}…"
