"""`starling run explain`: the outcome of a run, its cause first."""

from collections.abc import Iterator, Sequence

import typer

from starling.app.cli.id_name import Run, find_run
from starling.app.cli.options import Json, Tenant
from starling.app.cli.platform.connection import connection_of
from starling.app.cli.terminal.formats import counted
from starling.app.cli.terminal.interrupt_text import run_reference
from starling.app.cli.terminal.output import print_json, print_line, print_paragraph
from starling.client.api import Document
from starling.core.principal import DEFAULT_TENANT
from starling.core.run_status import RunStatus

app = typer.Typer(add_completion=False)

_OF_CAUSES = {
    **dict.fromkeys(("degraded_server", "changed_tool"), "`starling server list` says how each server is now."),
    "switched_off": "`starling switch list` says what is switched off.",
    "not_allowed": "`starling key list` shows the keys and what each may call.",
    "unknown_agent": "`starling agent list` shows the agents.",
    "model_unavailable": "`starling doctor` checks the models.",
}
_SHOWN = 20  # entries of a part; `--json` has them all


@app.command()
def explain(context: typer.Context, run: Run, tenant: Tenant = DEFAULT_TENANT, as_json: Json = False) -> None:
    """Explain the outcome of a run: its cause first, what followed from it, and what it cost. Asks no model."""
    api = connection_of(context).api(tenant)
    document = api.get(f"/v1/runs/{find_run(api, run)}/explanation")
    if as_json:
        print_json(document)
        return
    print_line(headline(document))
    if cause := document["cause"]:
        print_line(f"Cause: {cause['code']}", "bold red")
        print_paragraph(_with_references(cause))
        print_paragraph(where_to_look(document, run_reference(document["run_id"], tenant)))
    else:
        print_line(no_cause(document), "bold green")
    for title, lines in explanation_parts(document):
        print_line(title, "bold")
        for line in lines:
            print_paragraph(line)


def headline(document: Document) -> str:
    """Return the line that says how the run ended, and how many parts of its answer are missing."""
    missing = len(document["degraded"])
    lacking = f", {counted(missing, 'part')} not answered" if missing else ""
    return f"Run {document['run_id']}: {document['status']}{lacking}"


def where_to_look(document: Document, run: str) -> str:
    """Return the commands that show the rows of the cause; `run` is how commands name the run."""
    events = [int(ref["id"]) for ref in document["cause"]["refs"] if ref["kind"] == "event"]
    also = _OF_CAUSES.get(document["cause"]["code"], "")
    if not events or any(one["what"] == "events" for one in document["pruned"]):
        return f"Look at it with `starling run show {run}`. {also}".rstrip()
    first = min(events)
    rows = f"`starling run tail {run} --json --after {first - 1}` begins with event {first}."
    return f"Look at it with `starling run show {run} --tree`; {rows} {also}".rstrip()


def no_cause(document: Document) -> str:
    """Return the line in place of a cause: one may be found later, or in rows that are no longer kept."""
    if not RunStatus(document["status"]).terminal:
        return "Cause: none so far."
    if any(one["what"] in ("events", "not_read") for one in document["pruned"]):
        return "Cause: none in the rows that are still kept."
    return "Cause: none. The run answered everything."


def explanation_parts(document: Document) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the parts of an explanation that have content, each with its title, without the first cause."""
    parts: dict[str, Sequence[Document]] = {
        "Also went wrong": [{**one, "text": f"{one['code']}: {one['text']}"} for one in document["causes"][1:]],
        "Waits for": [one for one in document["waited"] if one["state"] == "open"],
        "Asked": [document["asked"]],
        "Planned": [document["planned"], *document["planned"]["versions"]],
        "Look at": document["look_at"],
        "Failed": document["failures"],
        "Verdicts": document["verdicts"],
        "Errors that an agent passed over": document["passed_over"],
        "Done again": document["retried"],
        "Not answered": document["degraded"],
        "Waited for": [one for one in document["waited"] if one["state"] != "open"],
        "No longer known": document["pruned"],
        "Cost": [document["cost"]],
    }
    for title, entries in parts.items():
        more = f"… and {len(entries) - _SHOWN} more (`--json` has them all)"
        lines = [*map(_with_references, entries[:_SHOWN]), *([more] if len(entries) > _SHOWN else [])]
        if lines:
            yield title, lines


def _with_references(entry: Document) -> str:
    """Return a sentence with the rows that it rests on."""
    refs = ", ".join(f"{ref['kind']} {ref['id']}" for ref in entry.get("refs", ()))
    return f"{entry['text']} [{refs}]" if refs else entry["text"]
