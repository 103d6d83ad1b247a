"""`starling run show`: one run as it is stored."""

from typing import Annotated, Any

import typer

from starling.app.cli.platform.connection import connection_of
from starling.app.cli.platform.run_source import Document
from starling.app.cli.run.run_name import RUN_HELP, find_run
from starling.app.cli.terminal.build_text import WIDTH, build_lines
from starling.app.cli.terminal.event_text import log_text
from starling.app.cli.terminal.interrupt_text import event_of, interrupt_lines, run_reference
from starling.app.cli.terminal.output import line_width, print_json, print_line
from starling.app.cli.terminal.run_tree import STYLES, tree_lines
from starling.core.json import canonical
from starling.core.principal import DEFAULT_TENANT

app = typer.Typer(add_completion=False)

_DESCRIPTION_CHARS = 120
_INDENT = 2  # of the lines of a part


@app.command()
def show(
    context: typer.Context,
    run: Annotated[str, typer.Argument(help=RUN_HELP)],
    tenant: Annotated[str, typer.Option(help="The tenant of the run.")] = DEFAULT_TENANT,
    as_tree: Annotated[bool, typer.Option("--tree", help="Show what it did as a tree, as its trace has it.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show a run: its plan, its steps and its result."""
    source = connection_of(context).source(tenant)
    if as_tree:
        _show_tree(source.tree(find_run(source, run)), as_json=as_json)
        return
    document = source.run(find_run(source, run))
    if as_json:
        print_json(document)
        return
    for field in ("run_id", "status", "thread_id", "epoch", "trace_id"):
        print_line(f"{field:<10} {document[field]}")
    for title, lines in run_parts(document, run_reference(document["run_id"], tenant)):
        print_line(title, "bold")
        for line in lines:
            print_line(f"{' ' * _INDENT}{line}")
    if document["result"]:
        print_line("Answer", "bold")
        print_line(document["result"]["reply"])


def _show_tree(document: Document, *, as_json: bool) -> None:
    if as_json:
        print_json(document)
        return
    for line, state in tree_lines(document["root"], line_width()):
        print_line(line, STYLES.get(state))
    for text in document["pruned"]:
        print_line(text, "yellow")


def run_parts(document: Document, run: str) -> list[tuple[str, list[str]]]:
    """Return the parts of a run that have content, each with its title; `run` is how commands name the run."""
    result: dict[str, Any] = document["result"] or {}
    calls = [call for task in document["tasks"] for attempt in task["attempts"] for call in attempt["calls"]]
    waiting = [item for item in document["interrupts"] if item["state"] == "open"]
    sources = result.get("citations", ())
    parts: list[tuple[str, list[str]]] = [
        ("Plan", [f"{task['path']} {task['agent']}: {task['text']}" for task in document["tasks"]]),
        ("Logs", [f"{log['call_id']:<8} {log['name']} {_shortened(log_text(log))}" for log in document["logs"]]),
        ("Build", [line for event in document["builds"] for line in _built(event)]),
        ("Skills", [_used(task["path"], used) for task in document["tasks"] for used in task["skills"]]),
        ("Behind", [f"{run['run_id']}, which is {run['status']}" for run in (document["behind"],) if run]),
        ("Waits for", [line for item in waiting for line in _asked(item, run)]),
        ("Effects", [_effect(call) for call in calls if call["effect"] != "read"]),
        ("Artifacts", [f"{call['id']:<8} {call['name']}: {call['artifact']}" for call in calls if call["artifact"]]),
        ("Sources", [f"[{one['id']}] {one['agent']}: {', '.join(one['tools'])}" for one in sources]),
        ("Assumptions", result.get("assumptions", [])),
        ("Feedback", [_judged(given) for given in document["feedback"]]),
        ("Not answered", [f"{item['part']}: {item['reason']}" for item in result.get("degraded", ())]),
    ]
    return [(title, lines) for title, lines in parts if lines]


def _asked(item: dict[str, Any], run: str) -> list[str]:
    _, *others = interrupt_lines(event_of(item["kind"]), item, run)
    return [f"{item['kind']} {item['id']}: {item['message']}", *others]


def _built(event: dict[str, Any]) -> list[str]:
    return [line for line, _ in build_lines(event["type"], event, WIDTH - _INDENT)]


def _used(path: str, skill: dict[str, Any]) -> str:
    """Return a line for a skill that was in the prompt of a task."""
    followed = "followed" if skill["followed"] else "not followed"
    return f"{path:<8} {skill['id']} {followed}: {_shortened(skill['task'])}"


def _effect(call: dict[str, Any]) -> str:
    """Return a line for a call that may change something: its state, and who settled it."""
    by = f", settled by {call['settled_by']}" if call["settled_by"] else ""
    return f"{call['id']:<8} {call['state']:<10} {_shortened(f'{call["name"]} {canonical(call["args"])}')}{by}"


def _judged(given: dict[str, Any]) -> str:
    return f"{given['score']:g} by {given['by']}{f': {_shortened(given["comment"])}' if given['comment'] else ''}"


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _DESCRIPTION_CHARS else f"{line[: _DESCRIPTION_CHARS - 1]}…"
