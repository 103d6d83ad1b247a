"""The document of a run: one value for the API, the command line, exports, explanations and comparisons."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from starling.core.json import JsonObject
from starling.core.run_status import RunStatus
from starling.core.task_paths import without_numbers

type TaskStatus = Literal["pending", "running", "approved", "failed"]
type ChangeKind = Literal["added", "removed", "assigned", "reassigned", "reworded", "reordered", "repeated"]
type InterruptKind = Literal["approval", "clarification", "budget", "in_doubt"]
type InterruptState = Literal["open", "resolved", "cancelled", "expired"]


@dataclass(frozen=True, slots=True)
class ModelCall:
    """A request to a model. `path` is where it was made: `supervisor/1`, `t1`, `t1/review`, `qa/1`.

    `step` is the number of its step, `at` its end; `error` is the code of the error, empty where it answered.
    `prompt` names the
    wording that was used.
    """

    path: str
    model: str
    role: str
    prompt: JsonObject | None
    tokens: int
    input_tokens: int
    ms: float | None
    error: str
    step: int
    at: datetime


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call.

    `seq` is the number of the event with which it left, `at` its time; `result_seq` and `result_at` are its result's.
    `status` is empty until it answered. `state`, `sent_at`, `settled_at` and `settled_by` are those of the ledger, of
    calls
    that may change something. `code` says why it failed. `simulated` says what answered in place of the server in a
    trial.
    `artifact` is the id of the whole result where it was too long for a model; `malformed` marks arguments that could
    not be read.
    """

    id: str
    name: str
    args: JsonObject
    seq: int
    at: datetime
    status: Literal["", "succeeded", "failed"] = ""
    result: str = ""
    progress: str = ""
    effect: str = "read"
    state: str = ""
    sent_at: datetime | None = None
    settled_at: datetime | None = None
    settled_by: str | None = None
    code: str = ""
    ms: float | None = None
    artifact: str | None = None
    simulated: str | None = None
    malformed: bool = False
    result_seq: int = 0
    result_at: datetime | None = None

    @property
    def failed(self) -> bool:
        return self.status == "failed"


@dataclass(frozen=True, slots=True)
class ReviewVerdict:
    """A verdict.

    `seq` is the number of its event; `refined` is the output that replaced the attempt's, where it was fixed.
    """

    status: Literal["APPROVED", "FIXED", "REJECTED"]
    reasons: Sequence[str]
    seq: int
    refined: str = ""


@dataclass(frozen=True, slots=True)
class TaskAttempt:
    """One attempt at a task. `text` is what the agent wrote last, where it is kept."""

    number: int
    seq: int
    at: datetime
    text: str = ""
    model_calls: Sequence[ModelCall] = ()
    calls: Sequence[Call] = ()
    verdict: ReviewVerdict | None = None


@dataclass(frozen=True, slots=True)
class RecalledSkill:
    """A skill that was in the prompt of a task; `followed` if its calls were made in order."""

    id: str
    task: str
    followed: bool


@dataclass(frozen=True, slots=True)
class Fact:
    """A value that an approved task found, for the tasks after it; `call` is the id of the tool call that it is of."""

    key: str
    value: str | int | float | bool
    call: str


@dataclass(frozen=True, slots=True)
class PlanChange:
    """What a version of a plan changed about a task, and why."""

    kind: ChangeKind
    task_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """One try of a task: `path` is `t1`, `t1.2` after a new plan, `t3/t1` inside a team.

    `star` is the path of its team, or empty. `seq` is the number of the event with which it ended, 0 until then, and
    `ended_at` its time. `inherited`: it ended in the run that this is a fork of. `column` and `row`, from 0, are its
    place in a drawing of its star's tasks.
    """

    path: str
    star: str
    agent: str
    text: str
    depends_on: Sequence[str] = ()
    status: TaskStatus = "pending"
    code: str = ""
    summary: str = ""
    skills: Sequence[RecalledSkill] = ()
    artifacts: Sequence[str] = ()
    facts: Sequence[Fact] = ()
    attempts: Sequence[TaskAttempt] = ()
    seq: int = 0
    ended_at: datetime | None = None
    inherited: bool = False
    column: int = 0
    row: int = 0

    @property
    def place(self) -> str:
        """The path of the task in whichever try."""
        return without_numbers(self.path)

    @property
    def id(self) -> str:
        """The name of the task in its plan."""
        return self.place.rpartition("/")[2]

    @property
    def calls(self) -> Iterator[Call]:
        """The tool calls of all attempts."""
        return (call for attempt in self.attempts for call in attempt.calls)


@dataclass(frozen=True, slots=True)
class PlanVersion:
    """A version of a star's plan. `tasks` have `id, agent, task, depends_on, status`; in the last one that of now.

    `agent` is empty where results decide first who does the task. `changes` are those from the version before.
    """

    seq: int
    at: datetime
    star: str
    version: int
    plan: Sequence[str]
    thought_process: str
    tasks: Sequence[Mapping[str, Any]]
    inherited: bool = False
    changes: Sequence[PlanChange] = ()


@dataclass(frozen=True, slots=True)
class LeftOutTask:
    """A task that a supervisor decided on and that could not be planned; `code` says why.

    `path` is as in TaskRecord, `version` that of the plan that it was decided with. `code` is `unknown_agent`,
    `not_granted`, `switched_off`, `server_unavailable`, `agent_unavailable`, `outcome_unknown`, `bad_dependency`,
    `dependency` (of a task that could not be planned) or `limit_reached`.
    """

    path: str
    agent: str
    task: str
    code: str
    version: int

    @property
    def star(self) -> str:
        """The path of its team, or empty."""
        return self.path.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class Notice:
    """A warning or an error.

    `task` is the id of the task that it is about, `star` the path of its team; both may be empty.
    """

    seq: int
    at: datetime
    kind: Literal["warning", "error"]
    code: str
    message: str
    task: str = ""
    star: str = ""


@dataclass(frozen=True, slots=True)
class RunInterrupt:
    """A question of a run.

    `call` is the exact tool call that it is about, if any; `seq` is the number of its event, 0 where unknown. `code` is
    `repeat_after_rejection` for an approval of what an earlier attempt did in another way. `answer` is the text that
    a clarification was answered with. `asked_by` is the name of the key that the run acts as, in lists of open ones.
    """

    id: str
    run_id: str
    kind: InterruptKind
    path: str
    reason: str
    message: str
    responseSchema: JsonObject  # noqa: N815 - as in the event
    call: JsonObject | None
    state: InterruptState
    createdAt: datetime | None  # noqa: N815
    expiresAt: datetime  # noqa: N815
    answered_at: datetime | None = None
    answered_by: str | None = None
    code: str | None = None
    seq: int = 0
    answer: str = ""
    asked_by: str = ""


@dataclass(frozen=True, slots=True)
class RunFailure:
    """What ended a run before its time."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class RunAhead:
    """The earlier run of the branch that a queued run waits for."""

    run_id: str
    status: RunStatus


@dataclass(frozen=True, slots=True)
class Feedback:
    """What a principal says of a run: a score from 0 (useless) to 1 (as it should be), and a comment."""

    by: str
    score: float
    comment: str
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Pruned:
    """Rows that are no longer kept, or were not read: `events`, `steps`, `journal`, `artifacts` or `not_read`."""

    what: str
    text: str


@dataclass(frozen=True, slots=True)
class RunHeader:
    """What is known of a run without its events and steps.

    `events` is the number of the latest event. `result` is the RunResult as JSON, None until the run has ended.
    `claims` is how often a worker took the run. `forked_from` has `run`, `at`, `changes` and `live` of a fork.
    `governance` is the GovernanceDecision as JSON, None until the run has begun, and once its journal was pruned.
    """

    run_id: str
    thread_id: str
    trace_id: str
    correlation_id: str
    epoch: int
    status: RunStatus
    input: str
    config: JsonObject
    created_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    events: int = 0
    result: Mapping[str, Any] | None = None
    why: RunFailure | None = None
    behind: RunAhead | None = None
    claims: int = 0
    forked_from: JsonObject | None = None
    governance: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class RunDocument(RunHeader):
    """Everything that is known of a run.

    `interrupts` has the open ones, and those that were answered as long as they are kept. `decisions` are the model
    calls of supervisors and of final answers, `left_out` the tasks that were decided on and could not be planned.
    `builds` are the events of teams that it designed, checked, proved and published, `logs` the first 200 events
    `tool_log`. Parts that were not asked for are empty.
    """

    interrupts: Sequence[RunInterrupt] = ()
    feedback: Sequence[Feedback] = ()
    pruned: Sequence[Pruned] = ()
    plans: Sequence[PlanVersion] = ()
    tasks: Sequence[TaskRecord] = ()
    decisions: Sequence[ModelCall] = ()
    left_out: Sequence[LeftOutTask] = ()
    notices: Sequence[Notice] = ()
    builds: Sequence[Mapping[str, Any]] = ()
    logs: Sequence[Mapping[str, Any]] = ()

    @property
    def code(self) -> str:
        """Why the run did not succeed; empty if it did, or has not ended."""
        return str((self.result or {}).get("code") or "")

    @property
    def prompts(self) -> Sequence[JsonObject]:
        """The wordings that its model calls used, each once, in the order of their first use."""
        found = sorted(self.model_calls(), key=lambda call: call.step)
        return list({str(call.prompt): call.prompt for call in found if call.prompt}.values())

    def model_calls(self) -> Iterator[ModelCall]:
        """Yield the model calls of decisions and of all attempts."""
        yield from self.decisions
        for task in self.tasks:
            for attempt in task.attempts:
                yield from attempt.model_calls
