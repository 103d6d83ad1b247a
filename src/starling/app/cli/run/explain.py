"""`starling run explain`: why a run came to what it came to, the cause first."""

from collections.abc import Iterator, Sequence
from typing import Any

import typer

from starling.app.cli.options import Json, Tenant
from starling.app.cli.platform.api import Document
from starling.app.cli.platform.connection import connection_of
from starling.app.cli.run.run_name import Run, find_run
from starling.app.cli.terminal.event_text import counted
from starling.app.cli.terminal.interrupt_text import run_reference
from starling.app.cli.terminal.output import print_json, print_line, print_paragraph
from starling.core.principal import DEFAULT_TENANT
from starling.core.run_status import RunStatus

app = typer.Typer(add_completion=False)

_LIST_PARTS = (
    ("Failed", "failures"),
    ("Verdicts", "verdicts"),
    ("Errors that an agent passed over", "passed_over"),
    ("Done again", "retried"),
    ("Not answered", "degraded"),
    ("Waited for", "waited"),
    ("No longer known", "pruned"),
)
_SERVERS = "`starling server list` says how each server is now."
_OF_CAUSES = {
    "degraded_server": _SERVERS,
    "changed_tool": _SERVERS,
    "switched_off": "`starling switch list` says what is switched off.",
    "revoked_grant": "`starling key list` shows the keys and what each may call.",
    "stale_skill": "`starling skill list` shows the skills.",
    "model_unavailable": "`starling doctor` checks the models.",
}
_CAUSES_ARE_IN = ("events", "not_read")
_SHOWN = 20  # entries of a part; `--json` has them all


@app.command()
def explain(
    context: typer.Context,
    run: Run,
    tenant: Tenant = DEFAULT_TENANT,
    as_json: Json = False,
) -> None:
    """Explain a run: what went wrong first, what followed from it, and what it cost. Asks no model."""
    api = connection_of(context).api(tenant)
    document = api.get(f"/v1/runs/{find_run(api, run)}/explanation")
    if as_json:
        print_json(document)
        return
    print_line(headline(document))
    _print_cause(document, run_reference(document["run_id"], tenant))
    for title, lines in explanation_parts(document):
        print_line(title, "bold")
        for line in lines:
            print_paragraph(line)


def headline(document: Document) -> str:
    """Return the line that says how the run ended, also where an answer lacks something."""
    missing = len(document["degraded"])
    lacking = f", {counted(missing, 'part')} not answered" if missing else ""
    return f"Run {document['run_id']}: {document['status']}{lacking}"


def _print_cause(document: Document, run: str) -> None:
    cause = document["cause"]
    if cause is None:
        print_line(no_cause(document), "bold green")
        return
    print_line(f"Cause: {cause['code']}", "bold red")
    print_paragraph(_with_references(cause))
    print_paragraph(where_to_look(document, run))


def where_to_look(document: Document, run: str) -> str:
    """Return the commands that show the rows of the cause; `run` is how commands name the run."""
    events = [int(ref["id"]) for ref in document["cause"]["refs"] if ref["kind"] == "event"]
    also = f" {_OF_CAUSES[code]}" if (code := document["cause"]["code"]) in _OF_CAUSES else ""
    kept = not any(one["what"] == "events" for one in document["pruned"])
    if not kept or not events:
        return f"Look at it with `starling run show {run}`.{also}"
    first = min(events)
    return (
        f"Look at it with `starling run show {run} --tree`; `starling run tail {run} --json --after {first - 1}` "
        f"begins with event {first}.{also}"
    )


def no_cause(document: Document) -> str:
    """Return the line in place of a cause: what is open, deleted or not read may hold one."""
    if not RunStatus(document["status"]).terminal:
        return "Cause: none so far."
    if any(one["what"] in _CAUSES_ARE_IN for one in document["pruned"]):
        return "Cause: none that can still be told."
    return "Cause: none. Nothing went wrong that was not made up for."


def explanation_parts(document: Document) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the parts of an explanation that have content, each with its title, without the first cause."""
    if others := document["causes"][1:]:
        yield "Also went wrong", _first([f"{one['code']}: {_with_references(one)}" for one in others])
    if waiting := [entry for entry in document["waited"] if entry["state"] == "open"]:
        yield "Waits for", _first([_with_references(entry) for entry in waiting])
    yield "Asked", [document["asked"]["text"]]
    yield "Planned", [document["planned"]["text"], *_first(list(_plans(document["planned"]["versions"])))]
    for title, name in _LIST_PARTS:
        if entries := [entry for entry in document[name] if entry not in waiting]:
            yield title, _first([_with_references(entry) for entry in entries])
    yield "Cost", [document["cost"]["text"]]


def _plans(versions: Sequence[Document]) -> Iterator[str]:
    """Yield a line for each task of each version of a plan; a version that changed no task is one line."""
    before: dict[str, Any] = {}
    for version in versions:
        team = f" of the team at {version['star']}" if version["star"] else ""
        named = f"Version {version['version']}{team}"
        if version["tasks"] and before.get(version["star"]) == version["tasks"]:
            yield f"{named}: the same tasks. Why: {version['why'] or 'not told'}"
            continue
        before[version["star"]] = version["tasks"]
        for task in version["tasks"]:
            after = f" after {', '.join(task['depends_on'])}" if task["depends_on"] else ""
            yield f"{named}: {task['path']} {task['agent']}{after}, {task['status']}: {task['task']}"


def _with_references(entry: dict[str, Any]) -> str:
    """Return a sentence with the rows that it rests on."""
    refs = ", ".join(f"{ref['kind']} {ref['id']}" for ref in entry.get("refs", ()))
    return f"{entry['text']} [{refs}]" if refs else entry["text"]


def _first(lines: list[str]) -> list[str]:
    more = len(lines) - _SHOWN
    return [*lines[:_SHOWN], f"… and {more} more (`--json` has them all)"] if more > 0 else lines
