"""What a rule returns, and the sentences that rules share."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

from brain.explanation.history import Call, History, Task, VerdictRecord
from brain.explanation.texts import quoted, shortened
from starling.core.json import canonical

type CauseCode = Literal[
    "bad_plan_order",
    "build_failed",
    "cancelled_by_user",
    "changed_tool",
    "deadline_exceeded",
    "degraded_server",
    "effect_in_doubt",
    "empty_plan",
    "expired_approval",
    "failed_run",
    "failed_task",
    "failed_team_member",
    "ignored_tool_error",
    "internal_error",
    "invalid_result",
    "journal_diverged",
    "limit_reached",
    "lost_budget",
    "model_unavailable",
    "parked_run",
    "refused_approval",
    "rejected_result",
    "revoked_grant",
    "runtime_failed",
    "stale_skill",
    "switched_off",
    "tool_failed",
    "unable_agent",
    "unmet_tool",
    "unreachable_database",
    "unreadable_model_output",
    "wrong_argument",
    "wrong_tool",
    "wrong_verdict",
]
type RefKind = Literal["step", "event", "call", "task"]

_TEXT_CHARS = 240
_ARGUMENT_CHARS = 160
_VALUE_CHARS = 80


@dataclass(frozen=True, slots=True)
class Reference:
    """A row that a sentence rests on: the number of a step or an event, the id of a call, the path of a task."""

    kind: RefKind
    id: str


@dataclass(frozen=True, slots=True)
class Incident:
    """Something that went wrong, by the first event `seq` that shows it. `task` is the place of its task."""

    code: CauseCode
    text: str
    seq: int
    refs: tuple[Reference, ...] = ()
    task: str | None = None

    def also(self, *refs: Reference) -> Self:
        """Return the incident with further references."""
        return replace(self, refs=tuple(dict.fromkeys((*self.refs, *refs))))


type TaskRule = Callable[[History, Task], Incident | None]
"""Explains why a task failed, or returns None where it can't."""

type RunRule = Callable[[History], Iterable[Incident]]
"""Finds what went wrong in tasks that were approved, or in the run as a whole."""


def event(seq: int) -> Reference:
    return Reference("event", str(seq))


def refs_of_call(call: Call) -> tuple[Reference, ...]:
    """Return the references to a call and to its events."""
    return Reference("call", call.id), event(call.end or call.seq)


def task_incident(
    code: CauseCode, history: History, task: Task, text: str, calls: Sequence[Call] = (), *, seq: int = 0
) -> Incident:
    """Return an incident of a task; without `seq` it began with the first of its calls, else with its end."""
    del history
    end = task.last.end if task.last else None
    verdicts = [item.verdict for one in task.tries for item in one.attempts if item.verdict]
    rejected = next((verdict.seq for verdict in verdicts if verdict.status == "REJECTED"), 0)
    began = seq or (calls[0].end or calls[0].seq if calls else 0) or rejected or (end.seq if end else task.planned)
    shown = [ref for call in calls[:3] for ref in refs_of_call(call)]
    refs = [*shown, *([event(rejected)] if rejected and not calls else []), *([event(end.seq)] if end else [])]
    return Incident(code, text, began, (Reference("task", task.place), *dict.fromkeys(refs)), task.place)


def said(text: str, limit: int = _TEXT_CHARS) -> str:
    """Return a text as a quotation, without a full stop at its end: a sentence goes on after it."""
    return quoted(text.rstrip(". \n"), limit)


def value_text(value: object) -> str:
    """Return a value of an argument: a text as a quotation, all else as JSON."""
    return quoted(value, _VALUE_CHARS) if isinstance(value, str) else shortened(canonical(value), _VALUE_CHARS)


def reasons_text(verdicts: Iterable[VerdictRecord | None]) -> str:
    """Return the reasons of verdicts, each once."""
    return " ".join(dict.fromkeys(reason for verdict in verdicts if verdict for reason in verdict.reasons))


def call_text(call: Call) -> str:
    """Return a call in words: its tool with the arguments."""
    return f"{call.name} with {shortened(canonical(call.arguments), _ARGUMENT_CHARS)}"


def task_text(task: Task) -> str:
    """Return the name of a task in a sentence, with what it was about."""
    return f"task {task.place} ({said(task.text, 100)})" if task.text else f"task {task.place}"


def who(task: Task) -> str:
    """Return the agent of a task."""
    last = task.last
    return (last.agent if last else "") or task.agent or "an agent"


def why_failed(history: History, task: Task) -> str:
    """Return why a task failed, as fully as it is kept."""
    end = task.last.end if task.last else None
    summary = end.summary if end else ""
    beginning = summary.removesuffix("…")
    for part in (history.rows.run.result or {}).get("degraded") or ():
        if beginning and str(part["reason"]).startswith(beginning):
            return str(part["reason"])
    return summary


def code_of(task: Task) -> str:
    """Return the code of a failed task; of an older row, that of its last failed call or of its verdict."""
    last = task.last
    if last is None:
        return ""
    if last.end and last.end.code:
        return last.end.code
    if failed := uncorrected(last.calls):
        return failed[-1].code or "tool_error"
    verdicts = [attempt.verdict for attempt in last.attempts if attempt.verdict]
    return "rejected" if verdicts and verdicts[-1].status == "REJECTED" else ""


def uncorrected(calls: Sequence[Call]) -> list[Call]:
    """Return the failed calls after which no call of the same tool in a later answer succeeded."""
    return [
        call
        for call in calls
        if call.failed
        and not any(
            later.name == call.name and later.status == "succeeded" and later.place[0] > call.place[0]
            for later in calls
        )
    ]


def failed_calls(task: Task) -> list[Call]:
    """Return the failed calls of a failed task that were not corrected: those of its last try, or of an earlier one."""
    for one in reversed(task.tries):
        if found := uncorrected(one.calls):
            return found
    return []
