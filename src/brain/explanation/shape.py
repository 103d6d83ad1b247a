"""The published shape of an explanation. Fields may be added, never removed; codes may be added."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from starling.core.run_document.document import InterruptKind, Pruned, TaskStatus
from starling.core.run_status import RunStatus

type _OfCalls = Literal["call_timed_out", "changed_tool", "degraded_server", "effect_in_doubt", "invalid_result"]
type _OfAgents = Literal["rejected_result", "tool_failed", "unable_agent", "unknown_tool", "wrong_argument"]
type _OfPeople = Literal["cancelled_by_user", "expired_approval", "refused_approval", "unanswered_question"]
type _OfModels = Literal["model_unavailable", "unreadable_model_output"]
type _OfPlans = Literal["bad_plan_order", "empty_plan", "unknown_agent", "unserved_part"]
type _OfRules = Literal["agent_unavailable", "not_allowed", "switched_off"]
type _OfLimits = Literal["deadline_exceeded", "limit_reached", "lost_budget"]
type _OfFaults = Literal["build_failed", "internal_error", "journal_diverged", "parked_run", "runtime_failed"]
type _Unknown = Literal["failed_run", "failed_task"]
type CauseCode = _OfCalls | _OfAgents | _OfPeople | _OfModels | _OfPlans | _OfRules | _OfLimits | _OfFaults | _Unknown
type ShownStatus = Literal[TaskStatus, "waiting", "removed"]


@dataclass(frozen=True, slots=True)
class Ref:
    """A row that a sentence rests on: the number of a step or an event, the id of a call, the path of a task."""

    kind: Literal["step", "event", "call", "task"]
    id: str


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence about a run or one of its tasks, and the rows that it rests on."""

    text: str
    refs: Sequence[Ref]
    task: str | None


@dataclass(frozen=True, slots=True)
class Cause(Note):
    """What went wrong: a code of a closed set, a sentence, and the rows that show it."""

    code: CauseCode


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked. `agent` is set where the request went to one agent without a plan."""

    text: str
    request: str
    mode: str
    channel: str
    agent: str | None
    at: datetime


@dataclass(frozen=True, slots=True)
class TaskNote:
    """A task as a version of the plan had it, and its status in the end."""

    path: str
    agent: str
    task: str
    depends_on: Sequence[str]
    status: ShownStatus


@dataclass(frozen=True, slots=True)
class PlanNote:
    """A version of a plan, and why the supervisor made it. `star` is the path of the team, empty for the main star."""

    star: str
    version: int
    why: str
    text: str
    tasks: Sequence[TaskNote]
    refs: Sequence[Ref]


@dataclass(frozen=True, slots=True)
class Planned:
    """What was planned and why, over all versions."""

    text: str
    versions: Sequence[PlanNote]


@dataclass(frozen=True, slots=True)
class FailureNote(Note):
    """A task that failed, or never began. `followed_from` is the task whose failure it follows from."""

    task: str
    agent: str
    code: str
    followed_from: str | None
    recovered: bool


@dataclass(frozen=True, slots=True)
class VerdictNote(Note):
    """A verdict, and the ids of the calls that it rested on."""

    task: str
    attempt: int
    status: Literal["APPROVED", "FIXED", "REJECTED"]
    reasons: Sequence[str]
    rested_on: Sequence[str]


@dataclass(frozen=True, slots=True)
class PassedOver(Note):
    """A failed call that was not repeated with success, in a result that was approved."""

    task: str
    agent: str
    tool: str
    call: str


@dataclass(frozen=True, slots=True)
class Repetition(Note):
    """What was done more than once: a task, an attempt, a call, a question to a model, or the run on another worker."""

    kind: Literal["task", "attempt", "call", "model", "run"]
    count: int


@dataclass(frozen=True, slots=True)
class DegradedNote:
    """A part of the answer that is missing."""

    part: str
    reason: str
    text: str


@dataclass(frozen=True, slots=True)
class Wait:
    """What the run waited for: a person, the queue. `seconds` is the time so far where it still waits."""

    kind: Literal[InterruptKind, "queue"]
    state: Literal["open", "resolved", "cancelled", "expired", "over"]
    seconds: float
    text: str
    refs: Sequence[Ref]


@dataclass(frozen=True, slots=True)
class AgentCost:
    """What an agent, the reviewer, the supervisor or the final answer cost. Times are seconds of tool calls."""

    agent: str
    tokens: int
    model_calls: int
    tool_calls: int
    tool_seconds: float


@dataclass(frozen=True, slots=True)
class Cost:
    """What the run cost. `money` is None: no prices are known."""

    text: str
    tokens: int
    input_tokens: int
    output_tokens: int
    estimated: bool
    model_calls: int
    tool_calls: int
    seconds: float
    by_agent: Sequence[AgentCost]
    money: float | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """The outcome of a run, explained by the structure of its document.

    `cause` is the first of `causes`, None where the run answered everything. `failures` are in the order in which they
    happened. `look_at` names what structure does not judge, so it is never a cause.
    """

    run_id: str
    status: RunStatus
    cause: Cause | None
    causes: Sequence[Cause]
    look_at: Sequence[Note]
    asked: Asked
    planned: Planned
    failures: Sequence[FailureNote]
    verdicts: Sequence[VerdictNote]
    passed_over: Sequence[PassedOver]
    retried: Sequence[Repetition]
    degraded: Sequence[DegradedNote]
    waited: Sequence[Wait]
    cost: Cost
    pruned: Sequence[Pruned]
