"""`starling run`: runs, as they are stored and as they go on."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Annotated, Any
from uuid import UUID

import typer

from starling.app.cli.command_settings import settings_of
from starling.app.cli.lazy_commands import Lazy, lazy_group
from starling.app.cli.signals import run_until_stopped
from starling.app.cli.terminal.interrupt_text import document_of, event_of, interrupt_lines, run_reference
from starling.app.cli.terminal.output import print_json, print_line, print_table, results
from starling.app.cli.terminal.run_display import IDLE_SECONDS, RunDisplay
from starling.app.runs.records import RunRecords, open_records
from starling.app.runtime.background_tasks import in_background
from starling.core.errors import DatabaseUnavailableError, InvalidRequestError
from starling.core.events import StoredEvent
from starling.core.json import canonical
from starling.core.principal import DEFAULT_TENANT
from starling.core.runs import RunStatus
from starling.core.settings import Settings
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.interrupts import waiting
from starling.infra.postgres.runs.ledger import LedgerReader
from starling.infra.postgres.runs.listing import RunFilter, RunSummary, run_details

app = typer.Typer(
    cls=lazy_group(
        {
            "artifacts": Lazy("starling.app.cli.run.artifacts", "List or read results that were too long."),
            "approve": Lazy("starling.app.cli.run.approve", "Answer what runs wait for, or list it."),
            "cancel": Lazy("starling.app.cli.run.cancel", "Cancel a run."),
        }
    ),
    add_completion=False,
    no_args_is_help=True,
)

_INPUT_CHARS = 80
_AHEAD = 100  # runs of a thread that are looked at
_UNFINISHED = (RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.WAITING)
_DESCRIPTION_CHARS = 120

_Tenant = Annotated[str, typer.Option(help="Whose runs.")]


@app.callback()
def root() -> None:
    """Look at runs, answer what they ask, and stop them."""


@app.command("list")
def list_runs(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many, the latest first.")] = 20,
    status: Annotated[RunStatus | None, typer.Option(help="Only those that stand so, such as waiting.")] = None,
    thread: Annotated[str | None, typer.Option(help="Only those of this thread.")] = None,
    tenant: _Tenant = DEFAULT_TENANT,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the latest runs."""
    which = RunFilter(thread_id=thread, status=status)
    found = run_until_stopped(_latest(settings_of(context), tenant, limit, which))
    if as_json:
        print_json([asdict(run) for run in found])
    elif found:
        print_table(("RUN", "STATUS", "BEGAN", "SECONDS", "THREAD", "REQUEST"), [_cells(run) for run in found])
    elif status or thread:
        print_line("There are no such runs.")
    else:
        print_line("There are no runs yet. `starling ask` makes one.")


@app.command()
def show(
    context: typer.Context,
    run: Annotated[str, typer.Argument(help="The run's id.")],
    tenant: _Tenant = DEFAULT_TENANT,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show a run: its plan, its steps and what it came to."""
    document = run_until_stopped(_document(settings_of(context), _key(tenant, run)))
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


@app.command()
def tail(
    context: typer.Context,
    run: Annotated[str, typer.Argument(help="The run's id.")],
    after: Annotated[int, typer.Option(min=0, help="Begin after the event of this number.")] = 0,
    tenant: _Tenant = DEFAULT_TENANT,
    as_json: Annotated[bool, typer.Option("--json", help="Print each event as a line of JSON.")] = False,
) -> None:
    """Read a run's stream from any point on, up to its end."""
    display = RunDisplay(results(), live=False, after=after, tenant=tenant)
    display.run_id = run

    def show_event(event: StoredEvent) -> None:
        if as_json:
            print_json({"seq": event.seq, **event.data})
        else:
            display.feed(event.seq, event.type, event.data)

    idle = None if as_json else display
    status = run_until_stopped(_follow(settings_of(context), _key(tenant, run), after, show_event, idle))
    if not status:
        typer.echo(f"There is nothing after event {after}: the run has ended.", err=True)
    if status not in ("", "succeeded"):
        raise typer.Exit(1)


async def _latest(settings: Settings, tenant: str, limit: int, which: RunFilter) -> Sequence[RunSummary]:
    async with open_records(settings) as records:
        return await records.latest_runs(tenant, limit, which)


async def _document(settings: Settings, key: RunKey) -> dict[str, Any]:
    async with open_records(settings) as records:
        record = await records.runs.record(key)
        steps = await records.runs.steps(key)
        calls = await LedgerReader(records.engine).calls(key)
        kept = await records.artifacts.of_run(key.tenant, key.id)
        asked = await waiting(records.engine, key)
        ahead = await _ahead(records, key, record.thread_id) if record.status is RunStatus.QUEUED else ()
        plan = await records.runs.latest(key, "plan")
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


async def _ahead(records: RunRecords, key: RunKey, thread: str) -> Sequence[RunSummary]:
    """Return what has to end before a queued run begins: earlier runs of its thread, the latest first."""
    earlier = await records.latest_runs(key.tenant, _AHEAD, RunFilter(thread_id=thread, before=key.id))
    return [run for run in earlier if run.status in _UNFINISHED]


async def _follow(
    settings: Settings, key: RunKey, after: int, show_event: Callable[[StoredEvent], None], idle: RunDisplay | None
) -> str:
    """Show each event as it comes; return the run's status at its end, empty where `after` lay beyond it.

    `idle` is a display, which needs the events before, too, and where to say why nothing comes.
    """
    async with open_records(settings) as records, in_background(_tell_ahead(records, key, idle), "look ahead"):
        await records.runs.record(key)
        async for event in records.runs.follow(key, after=0 if idle else after):
            show_event(event)
            if event.type == "done":
                return str(event.data["status"]) if event.seq > after else ""
    return ""


async def _tell_ahead(records: RunRecords, key: RunKey, display: RunDisplay | None) -> None:
    """Say after a while why nothing has come, where another run is why."""
    await asyncio.sleep(IDLE_SECONDS)
    if display is None or not display.idle:
        return
    try:
        ahead = (await run_details(records.engine, key)).behind
    except DatabaseUnavailableError:
        return  # the reader waits for it, too
    if ahead and display.idle:
        display.behind(ahead.run_id, ahead.status.value)


def _key(tenant: str, run: str) -> RunKey:
    try:
        return RunKey(tenant, str(UUID(run)))
    except ValueError:
        raise InvalidRequestError(f"{run!r} is no id of a run.", "`starling run list` shows the ids.") from None


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
    """Return a call that may change something, where it stands and who said so, if it wasn't the call itself."""
    by = f", said by {call['settled_by']}" if call["settled_by"] else ""
    return (
        f"{call['call_id']:<8} {call['state']:<10} {_shortened(f'{call["tool"]} {canonical(call["arguments"])}')}{by}"
    )


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _DESCRIPTION_CHARS else f"{line[: _DESCRIPTION_CHARS - 1]}…"


def _cells(run: RunSummary) -> tuple[str, ...]:
    began = run.created_at.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    return run.id, run.status.value, began, f"{run.seconds:.1f}", run.thread_id, run.input[:_INPUT_CHARS]
