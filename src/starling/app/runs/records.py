"""The records of runs for programs that judge them: one for each run, of what people may read of it."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from starling.core.events.stream import StoredEvent
from starling.core.runs import RunResult, Step
from starling.core.secrets.known import strings_in
from starling.core.secrets.look_alikes import mask_keys_in
from starling.core.tracing import USER_FEEDBACK, VERDICT_SCORE, VERDICT_VALUES, outcome_scores
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.feedback import Feedback, FeedbackRepository
from starling.infra.postgres.runs.listing import RunDetails, RunFilter, RunListing
from starling.infra.postgres.runs.reader import RunReader

SCHEMA: Final = "starling.run/1"
_PAGE_CHARS: Final = 8 * 1024**2  # of texts, after which a page ends: a run may have thousands of events
_EVENTS: Final = ("plan", "task_result", "tool_start", "tool_result", "reflection")

type Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RecordsPage:
    """Records, and the id of the run that the next page begins after; None where there is no further one."""

    records: Sequence[Document]
    next: str | None


@dataclass(frozen=True, slots=True)
class RunRecords:
    """Reads records, run by run. Raises DatabaseUnavailableError."""

    listing: RunListing
    reader: RunReader
    feedback: FeedbackRepository

    async def page(self, tenant: str, *, limit: int, which: RunFilter) -> RecordsPage:
        """Return the records of the latest runs, newest first; fewer than `limit` where they are long."""
        found = await self.listing.latest(tenant, limit=limit, which=which)
        records: list[Document] = []
        size = 0
        for run in found:
            record, length = await self._of(RunKey(tenant, run.id))
            records.append(record)
            size += length
            if size >= _PAGE_CHARS:
                break
        more = len(found) == limit or len(records) < len(found)
        return RecordsPage(records, found[len(records) - 1].id if more and which.id is None else None)

    async def _of(self, key: RunKey) -> tuple[Document, int]:
        """Return the record of a run, with `***` where something looks like a key, and the length of its texts."""
        run = await self.listing.details(key)
        events = await self.reader.events_of_types(key, _EVENTS)
        steps, given = await self.reader.steps(key), await self.feedback.of_run(key)
        return await asyncio.to_thread(_masked_record, run, _Events(events), steps, given)


@dataclass(frozen=True, slots=True)
class _Events:
    """The events that a record is made of, oldest first."""

    found: Sequence[StoredEvent]

    def of(self, kind: str) -> Iterator[Document]:
        """Yield the data of the events of a type."""
        for event in self.found:
            if event.type == kind:
                yield {name: value for name, value in event.data.items() if name != "type"}


def _masked_record(
    run: RunDetails, events: _Events, steps: Sequence[Step], given: Sequence[Feedback]
) -> tuple[Document, int]:
    record: Any = mask_keys_in(_record(run, events, steps, given))
    return record, sum(map(len, strings_in(record)))


def _record(run: RunDetails, events: _Events, steps: Sequence[Step], given: Sequence[Feedback]) -> dict[str, Any]:
    result = run.result or RunResult(status="failed", reply="")
    verdicts = list(events.of("reflection"))
    return {
        "schema": SCHEMA,
        "run_id": run.id,
        "thread_id": run.thread_id,
        "trace_id": run.trace_id,
        "correlation_id": run.correlation_id,
        "epoch": run.epoch,
        "status": run.status.value,
        "code": result.code,
        "created_at": run.created_at.isoformat(),
        "started_at": run.started_at and run.started_at.isoformat(),
        "ended_at": run.ended_at and run.ended_at.isoformat(),
        "request": run.input,
        "plans": list(events.of("plan")),
        "tasks": _tasks(events),
        "calls": _calls(events, steps),
        "verdicts": verdicts,
        "reply": result.reply,
        "citations": [source.model_dump() for source in result.citations],
        "assumptions": result.assumptions,
        "degraded": [part.model_dump() for part in result.degraded],
        "scores": [*_scores(run, verdicts, given)],
        "feedback": [_given(one) for one in given],
        "prompts": _prompts(steps),
        "usage": result.usage.model_dump() if run.result else None,
        "steps": [step.model_dump(mode="json") for step in steps],
        "pruned": run.trimmed > 0,
    }


def _tasks(events: _Events) -> list[Document]:
    """Return the results of tasks, with what the plan asked for."""
    asked = {
        (plan.get("path") or "", task["id"]): task for plan in events.of("plan") for task in plan["tasks"]
    }  # a later version of a plan replaces an earlier one
    return [
        {**result, "task": asked.get((_star(result["path"]), result["task_id"]), {}).get("task", "")}
        for result in events.of("task_result")
    ]


def _star(path: str) -> str:
    """Return the path of the star that a task belongs to; empty for the main one."""
    return path.rpartition("/")[0]


def _calls(events: _Events, steps: Sequence[Step]) -> list[Document]:
    """Return the tool calls in the order in which they left, each with its result and its step's metadata."""
    results = {result["call_id"]: result for result in events.of("tool_result")}
    metadata = {step.metadata.get("call_id"): step.metadata for step in steps if step.type == "tool_call"}
    kept = ("is_error", "error", "duration_ms", "span_id")
    return [
        {
            **start,
            **results.get(start["call_id"], {}),
            **{name: metadata.get(start["call_id"], {}).get(name) for name in kept},
        }
        for start in events.of("tool_start")
    ]


def _scores(run: RunDetails, verdicts: Sequence[Document], given: Sequence[Feedback]) -> Iterator[Document]:
    """Yield the scores of a run as Langfuse has them."""
    for verdict in verdicts:
        value, comment = VERDICT_VALUES[verdict["status"]], " ".join(verdict["reasons"])
        place = {name: verdict.get(name) for name in ("task_id", "path", "attempt")}
        yield {"name": VERDICT_SCORE, "value": value, "comment": comment, **place}
    if run.result:
        for name, value, comment in outcome_scores(run.result.status, run.result.code, run.result.reply):
            yield {"name": name, "value": value, "comment": comment}
    for one in given:
        yield {"name": USER_FEEDBACK, "value": one.score, "comment": one.comment, "by": one.by}


def _given(one: Feedback) -> Document:
    moments = {"created_at": one.created_at.isoformat(), "updated_at": one.updated_at.isoformat()}
    return {**asdict(one), **moments}


def _prompts(steps: Sequence[Step]) -> list[Document]:
    """Return the prompts that models were asked with, each once."""
    found: list[Document] = []
    for step in steps:
        prompt = step.metadata.get("prompt")
        if prompt and prompt not in found:
            found.append(prompt)
    return found
