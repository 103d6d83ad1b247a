"""Events of every run: its plan, its tasks, its calls, what it waits for and how it ended."""

from datetime import datetime
from operator import not_
from typing import Any, Literal

from pydantic import ConfigDict, Field

from starling.core.closed_document import ClosedDocument
from starling.core.run_document.document import Fact, PlanChange, RecalledSkill
from starling.core.tool_calls import CallState, Effect


class Event(ClosedDocument):
    """What all events share. The number (`seq`) is the SSE id and not part of the data."""


class RunStarted(Event):
    """The run was accepted and is durable."""

    type: Literal["run_started"] = "run_started"
    run_id: str
    thread_id: str
    trace_id: str
    epoch: int
    correlation_id: str


class PlannedTask(ClosedDocument):
    """One task of the plan, as it stands; `agent` is empty where results decide first who does it."""

    id: str
    agent: str
    task: str
    depends_on: list[str]
    status: Literal["pending", "running", "approved", "failed"]


class Plan(Event):
    """A supervisor made or changed its plan. `path` is that of its team, empty for the main star.

    `changes` says what is different from the plan before, and why. `inherited`: the run is a fork, and this is the plan
    that it begins with.
    """

    type: Literal["plan"] = "plan"
    version: int
    plan: list[str]
    tasks: list[PlannedTask]
    thought_process: str
    path: str = ""
    inherited: bool = Field(default=False, exclude_if=not_)
    changes: list[PlanChange] = Field(default=[], exclude_if=not_)


class SelectedAgent(ClosedDocument):
    """An agent and the task it was given."""

    agent: str
    task_id: str


class Route(Event):
    """Who works next. `path` is that of the team, empty for the main star."""

    type: Literal["route"] = "route"
    selected_agents: list[SelectedAgent]
    reason: str
    path: str = ""


class TaskStart(Event):
    """An agent begins an attempt at a task. `path` is where it runs: `t1`, or `t3/t1` inside a team."""

    type: Literal["task_start"] = "task_start"
    task_id: str
    agent: str
    path: str
    attempt: int


class TaskResult(Event):
    """A task ended. `skills` are those that were in its prompt; `code` says why it failed.

    `facts` are the values that tasks after it are given.
    `inherited`: it ended in the run that this is a fork of.
    """

    type: Literal["task_result"] = "task_result"
    task_id: str
    agent: str
    path: str
    attempt: int
    status: Literal["approved", "failed"]
    summary: str
    artifacts: list[str]
    skills: list[RecalledSkill] = Field(default=[])
    code: str | None = Field(default=None, exclude_if=lambda code: code is None)
    inherited: bool = Field(default=False, exclude_if=not_)
    facts: list[Fact] = Field(default=[], exclude_if=not_)


class Thinking(Event):
    """A piece of text for the user. A new `message_id` replaces what earlier ones said."""

    type: Literal["thinking"] = "thinking"
    content: str
    message_id: str


class ToolStart(Event):
    """A tool call leaves."""

    type: Literal["tool_start"] = "tool_start"
    name: str
    args: dict[str, Any]
    task_id: str
    path: str
    call_id: str


class ToolResult(Event):
    """A tool call came back. `simulated` says what answered a call of a trial that was not made."""

    type: Literal["tool_result"] = "tool_result"
    name: str
    result: str
    call_id: str
    status: Literal["succeeded", "failed"]
    state: CallState | None = None
    artifact: str | None = None
    simulated: Literal["fixture", "simulated"] | None = None


class ToolEvent(Event):
    """A call of a tool whose settings have it emit this event has succeeded."""

    type: Literal["tool_event"] = "tool_event"
    name: str
    tool: str
    call_id: str
    task_id: str
    path: str


class ToolProgress(Event):
    """A server reports how far a tool call is, of `total` where it says so. At most one a second, and 100 of a call."""

    type: Literal["tool_progress"] = "tool_progress"
    name: str
    task_id: str
    path: str
    call_id: str
    progress: float
    total: float | None = None
    message: str = ""


class ToolLog(Event):
    """A server writes to its log during a tool call. As rare as `tool_progress`."""

    type: Literal["tool_log"] = "tool_log"
    name: str
    task_id: str
    path: str
    call_id: str
    level: str
    logger: str = ""
    message: str


class Reflection(Event):
    """The verdict on one attempt of `agent`. `path` is that of its task."""

    type: Literal["reflection"] = "reflection"
    task_id: str
    attempt: int
    status: Literal["APPROVED", "FIXED", "REJECTED"]
    reasons: list[str]
    path: str = ""
    agent: str = ""


class Interrupt(Event):
    """The run waits for an answer: `[{interruptId, status: resolved | cancelled, payload}]`, payload by the schema."""

    id: str
    reason: str
    message: str
    responseSchema: dict[str, Any]  # noqa: N815 - the contract's name
    expiresAt: datetime  # noqa: N815


class ExactCall(ClosedDocument):
    """A tool call as it would be made, or was."""

    name: str
    args: dict[str, Any]
    task_id: str
    path: str
    call_id: str


class Clarification(Interrupt):
    """The run asks the user."""

    type: Literal["clarification"] = "clarification"


class ApprovalRequired(Interrupt):
    """A call needs the approval of a person; it is made with exactly these arguments, or not at all."""

    type: Literal["approval_required"] = "approval_required"
    call: ExactCall
    code: str | None = None  # repeat_after_rejection: an earlier attempt did something with the same tool


class BudgetRequired(Interrupt):
    """The run used up what it may use, and asks for more."""

    type: Literal["budget_required"] = "budget_required"


class InDoubt(Interrupt):
    """It is unknown whether a call was done; a person has to decide."""

    type: Literal["in_doubt"] = "in_doubt"
    call: ExactCall


class Gap(Event):
    """Events that are no longer kept. A stream gives it the number of the last of them: reading goes on after it."""

    model_config = ConfigDict(serialize_by_alias=True, populate_by_name=True)

    type: Literal["gap"] = "gap"
    first: int = Field(alias="from")
    last: int = Field(alias="to")


class Warn(Event):
    """Something went wrong that the run survives. `path` is that of the team where it did, empty for the main star."""

    type: Literal["warning"] = "warning"
    code: str
    message: str
    task_id: str | None = None
    path: str = ""


class Failure(Event):
    """Something went wrong that ends the run, or a task of it."""

    type: Literal["error"] = "error"
    code: str
    message: str
    task_id: str | None = None


class Usage(ClosedDocument):
    """What a run used; `estimated` if the endpoint of a model reported no tokens, so that some are an estimate."""

    tokens: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    model_calls: int = 0
    tool_calls: int = 0
    estimated: bool = Field(default=False, exclude_if=not_)


class CitedCall(ClosedDocument):
    """A call whose result a source has; `artifact` has the whole of a long one."""

    call_id: str
    tool: str
    artifact: str | None = Field(default=None, exclude_if=not_)


class Excerpt(ClosedDocument):
    """A part of a source that the answer rests on: the characters from `start` to before `end`.

    They are those of the `artifact`, without one of the result of call `call_id`, without both of the task's output.
    """

    text: str
    start: int
    end: int
    call_id: str | None = Field(default=None, exclude_if=not_)
    artifact: str | None = Field(default=None, exclude_if=not_)


class Citation(ClosedDocument):
    """Source of a part of the answer."""

    id: int
    task_id: str
    agent: str
    tools: list[str]
    calls: list[CitedCall] = Field(default=[], exclude_if=not_)
    excerpts: list[Excerpt] = Field(default=[], exclude_if=not_)


class Degradation(ClosedDocument):
    """A part of the answer that is missing, and the reason."""

    part: str
    reason: str


class Change(ClosedDocument):
    """A call that changed something, or may have. `declared`: an admin set what its tool may change.

    `approved`: the result of its task was approved.
    """

    call_id: str
    name: str
    args: dict[str, Any]
    task_id: str
    path: str
    effect: Effect
    state: CallState
    declared: bool
    approved: bool


class Done(Event):
    """Always the last, after an error too. `code` says why a run did not succeed, None if it did."""

    type: Literal["done"] = "done"
    usage: Usage
    status: Literal["succeeded", "failed", "cancelled", "budget_exhausted", "parked"]
    reply: str
    code: str | None = None
    citations: list[Citation] = Field(default=[])
    assumptions: list[str] = Field(default=[])
    degraded: list[Degradation] = Field(default=[])
    effects: list[Change] = Field(default=[])
