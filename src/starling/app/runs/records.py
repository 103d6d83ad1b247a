"""The records of runs for programs that judge them: one for each run, of what people may read of it."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Annotated, Any, Final, Literal, cast

from pydantic import BaseModel, Field

from starling.core.json import JsonObject, strings_in
from starling.core.run_document.document import Feedback, RunDocument
from starling.core.runs import RunResult, RunStatus, Step
from starling.core.secrets.look_alikes import mask_keys_in
from starling.core.tracing import USER_FEEDBACK, VERDICT_SCORE, VERDICT_VALUES, outcome_scores
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.documents import WHOLE_CHARS, RunDocumentRepository
from starling.infra.postgres.runs.listing import RunFilter, RunListing
from starling.infra.postgres.runs.reader import RunReader

_PAGE_CHARS: Final = 8 * 1024**2  # of texts, after which a page ends: a run may have thousands of events

type Documents = list[dict[str, Any]]
type Record = Mapping[str, Any]


class RunRecord(BaseModel):
    """A run as it is judged. `pruned`: its plans, tasks, calls, verdicts and steps were deleted by retention."""

    schema_: Annotated[Literal["starling.run/1"], Field(alias="schema")]
    run_id: str
    thread_id: str
    trace_id: str
    correlation_id: str
    epoch: int
    status: RunStatus
    code: str | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    request: str
    plans: Annotated[Documents, Field(description="As in the events `plan`, every version, also those of teams.")]
    tasks: Annotated[Documents, Field(description="As in the events `task_result`, with the text of the `task`.")]
    calls: Annotated[Documents, Field(description="As in `tool_start` and `tool_result`, with the step's metadata.")]
    verdicts: Annotated[Documents, Field(description="As in the events `reflection`.")]
    reply: str
    citations: Documents
    assumptions: list[str]
    degraded: Documents
    scores: Annotated[Documents, Field(description="As in Langfuse: `name`, `value`, `comment` and what each is of.")]
    feedback: list[Feedback]
    prompts: Annotated[Documents, Field(description="The prompts that models were asked with.")]
    usage: dict[str, Any] | None
    steps: Documents
    pruned: bool


class RecordPage(BaseModel):
    """Records, newest first. `next` is the value of `before` for the next page, null on the last page."""

    records: list[RunRecord]
    next: str | None


@dataclass(frozen=True, slots=True)
class RunRecords:
    """Reads records, run by run. Raises DatabaseUnavailableError."""

    listing: RunListing
    reader: RunReader
    documents: RunDocumentRepository

    async def page(self, tenant: str, *, limit: int, which: RunFilter) -> RecordPage:
        """Return the records of the latest runs, newest first; fewer than `limit` where they are long."""
        found = await self.listing.latest(tenant, limit=limit, which=which)
        records: list[RunRecord] = []
        size = 0
        for run in found:
            key = RunKey(tenant, run.run_id)
            document = await self.documents.read(key, ("tasks", "feedback"), chars=WHOLE_CHARS)
            record, length = await asyncio.to_thread(_record, document, await self.reader.steps(key))
            records.append(record)
            size += length
            if size >= _PAGE_CHARS:
                break
        more = len(found) == limit or len(records) < len(found)
        after = found[len(records) - 1].run_id if more and which.id is None else None
        return RecordPage(records=records, next=after)


def _record(run: RunDocument, steps: Sequence[Step]) -> tuple[RunRecord, int]:
    """Return the record of a run, with `***` where something looks like a key, and the length of its texts."""
    stored = run.result or {"status": "failed", "reply": ""}
    result = RunResult.model_validate(stored, extra="ignore")
    verdicts = list(_verdicts(run))
    document = {
        "schema": "starling.run/1",
        **_fields(run, "run_id", "thread_id", "trace_id", "correlation_id", "epoch", "status"),
        **_fields(run, "created_at", "started_at", "ended_at"),
        "request": run.input,
        "plans": [
            {
                **_fields(plan, "version", "plan", "tasks", "thought_process"),
                "path": plan.star,
                "changes": [asdict(change) for change in plan.changes],
            }
            for plan in run.plans
        ],
        "tasks": list(_tasks(run)),
        "calls": list(_calls(run, steps)),
        "verdicts": verdicts,
        **result.model_dump(include={"code", "reply", "citations", "assumptions", "degraded"}),
        "scores": [*_scores(run, result, verdicts)],
        "feedback": [asdict(one) for one in run.feedback],
        "prompts": _prompts(steps),
        "usage": result.usage.model_dump() if run.result else None,
        "steps": [step.model_dump(mode="json") for step in steps],
        "pruned": any(one.what == "events" for one in run.pruned),
    }
    masked: Any = mask_keys_in(cast("JsonObject", document))
    return RunRecord.model_validate(masked), sum(map(len, strings_in(masked)))


def _fields(of: object, *names: str) -> dict[str, Any]:
    """Return fields that a record has under the same name."""
    return {name: getattr(of, name) for name in names}


def _tasks(run: RunDocument) -> Iterator[Record]:
    """Yield the results of tasks in the order of their ends, with what the plan asked for."""
    for task in sorted((task for task in run.tasks if task.seq), key=lambda task: task.seq):
        yield {
            "task_id": task.id,
            "attempt": task.attempts[-1].number if task.attempts else 1,
            **_fields(task, "agent", "path", "status", "summary", "artifacts"),
            "skills": [asdict(skill) for skill in task.skills],
            "facts": [asdict(fact) for fact in task.facts],
            **({"code": task.code} if task.code else {}),
            "task": task.text,
        }


def _verdicts(run: RunDocument) -> Iterator[dict[str, Any]]:
    """Yield the verdicts in the order in which they were given."""
    given = [
        (verdict, task, attempt.number)
        for task in run.tasks
        for attempt in task.attempts
        if (verdict := attempt.verdict)
    ]
    for verdict, task, attempt in sorted(given, key=lambda one: one[0].seq):
        yield {"task_id": task.id, "attempt": attempt, **_fields(verdict, "status", "reasons"), "path": task.path}


def _calls(run: RunDocument, steps: Sequence[Step]) -> Iterator[Record]:
    """Yield the tool calls in the order in which they left, each with its result and its step's metadata."""
    metadata = {step.metadata.get("call_id"): step.metadata for step in steps if step.type == "tool_call"}
    kept = ("is_error", "error", "duration_ms", "span_id")
    made = [(call, task) for task in run.tasks for call in task.calls]
    for call, task in sorted(made, key=lambda one: one[0].seq):
        answer = _fields(call, "result", "status", "artifact", "simulated") | {"state": call.state or None}
        yield {
            **_fields(call, "name", "args"),
            "task_id": task.id,
            "path": task.path,
            "call_id": call.id,
            **(answer if call.status else {}),
            **{name: metadata.get(call.id, {}).get(name) for name in kept},
        }


def _scores(run: RunDocument, result: RunResult, verdicts: Sequence[Record]) -> Iterator[Record]:
    """Yield the scores of a run as Langfuse has them."""
    for verdict in verdicts:
        value, comment = VERDICT_VALUES[verdict["status"]], " ".join(verdict["reasons"])
        place = {name: verdict[name] for name in ("task_id", "path", "attempt")}
        yield {"name": VERDICT_SCORE, "value": value, "comment": comment, **place}
    if run.result:
        for name, value, comment in outcome_scores(result.status, result.code, result.reply):
            yield {"name": name, "value": value, "comment": comment}
    for one in run.feedback:
        yield {"name": USER_FEEDBACK, "value": one.score, "comment": one.comment, "by": one.by}


def _prompts(steps: Sequence[Step]) -> list[Record]:
    """Return the prompts that models were asked with, each once."""
    found: list[Record] = []
    for step in steps:
        prompt = step.metadata.get("prompt")
        if prompt and prompt not in found:
            found.append(prompt)
    return found
