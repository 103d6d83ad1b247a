"""`starling run show`: one run as it is stored."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from starling.app.cli.command_settings import settings_of
from starling.app.cli.run.run_key import parse_run_key
from starling.app.cli.signals import run_until_stopped
from starling.app.cli.terminal.interrupt_text import document_of, event_of, interrupt_lines, run_reference
from starling.app.cli.terminal.output import print_json, print_line
from starling.app.container.admin import AdminServices, open_admin
from starling.core.json import canonical
from starling.core.principal import DEFAULT_TENANT
from starling.core.runs import RunStatus
from starling.core.settings import Settings
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.listing import RunFilter, RunSummary

app = typer.Typer(add_completion=False)

_AHEAD = 100  # earlier runs of the thread that are read
_UNFINISHED = (RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.WAITING)
_DESCRIPTION_CHARS = 120


@app.command()
def show(
    context: typer.Context,
    run: Annotated[str, typer.Argument(help="The id of the run.")],
    tenant: Annotated[str, typer.Option(help="The tenant of the run.")] = DEFAULT_TENANT,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show a run: its plan, its steps and its result."""
    document = run_until_stopped(_document(settings_of(context), parse_run_key(tenant, run)))
    if as_json:
        print_json(document)
        return
    for field in ("run_id", "status", "thread_id", "epoch", "trace_id"):
        print_line(f"{field:<10} {document[field]}")
    for title, lines in _parts(document, run_reference(document["run_id"], tenant)):
        print_line(title, "bold")
        for line in lines:
            print_line(f"  {line}")
    if document["result"]:
        print_line("Answer", "bold")
        print_line(document["result"]["reply"])


async def _document(settings: Settings, key: RunKey) -> dict[str, Any]:
    async with open_admin(settings) as admin:
        record = await admin.reader.record(key)
        steps = await admin.reader.steps(key)
        calls = await admin.ledger.calls(key)
        kept = await admin.artifacts.of_run(key.tenant, key.id)
        asked = await admin.interrupts.waiting(key.tenant, run=key.id)
        ahead = await _ahead(admin, key, record.thread_id) if record.status is RunStatus.QUEUED else ()
        plan = await admin.reader.latest(key, "plan")
    return {
        "run_id": record.id,
        "status": record.status.value,
        "thread_id": record.thread_id,
        "trace_id": record.trace_id,
        "epoch": record.epoch,
        "correlation_id": record.correlation_id,
        "tasks": plan.data["tasks"] if plan else [],
        "calls": [asdict(call) | {"call_id": call.call_id} for call in calls],
        "artifacts": [asdict(item) for item in kept],
        "behind": [{"run_id": run.id, "status": run.status.value} for run in ahead],
        "waits_for": [document_of(item) for item in asked],
        "steps": [step.model_dump(mode="json") for step in steps],
        "result": record.result.model_dump(mode="json") if record.result else None,
    }


async def _ahead(admin: AdminServices, key: RunKey, thread: str) -> Sequence[RunSummary]:
    """Return the unfinished earlier runs of the thread, latest first: they end before this one begins."""
    earlier = await admin.listing.latest(key.tenant, limit=_AHEAD, which=RunFilter(thread_id=thread, before=key.id))
    return [run for run in earlier if run.status in _UNFINISHED]


def _parts(document: dict[str, Any], run: str) -> list[tuple[str, list[str]]]:
    result: dict[str, Any] = document["result"] or {"citations": [], "assumptions": [], "degraded": []}
    parts: list[tuple[str, list[str]]] = [
        ("Plan", [f"{task['id']} {task['agent']}: {task['task']}" for task in document["tasks"]]),
        ("Steps", [f"{step['type']:<10} {_shortened(step['description'])}" for step in document["steps"]]),
        ("Behind", [f"{run['run_id']}, which is {run['status']}" for run in document["behind"]]),
        ("Waits for", [line for item in document["waits_for"] for line in _asked(item, run)]),
        ("Effects", [_effect(call) for call in document["calls"]]),
        ("Artifacts", [f"{item['call_id']:<8} {item['name']}: {item['id']}" for item in document["artifacts"]]),
        ("Sources", [f"[{item['id']}] {item['agent']}: {', '.join(item['tools'])}" for item in result["citations"]]),
        ("Assumptions", result["assumptions"]),
        ("Not answered", [f"{item['part']}: {item['reason']}" for item in result["degraded"]]),
    ]
    return [(title, lines) for title, lines in parts if lines]


def _asked(item: dict[str, Any], run: str) -> list[str]:
    _, *others = interrupt_lines(event_of(item["kind"]), item, run)
    return [f"{item['kind']} {item['id']}: {item['message']}", *others]


def _effect(call: dict[str, Any]) -> str:
    """Return a line for a call that may change something: its state, and who settled it."""
    by = f", settled by {call['settled_by']}" if call["settled_by"] else ""
    return (
        f"{call['call_id']:<8} {call['state']:<10} {_shortened(f'{call["tool"]} {canonical(call["arguments"])}')}{by}"
    )


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _DESCRIPTION_CHARS else f"{line[: _DESCRIPTION_CHARS - 1]}…"
