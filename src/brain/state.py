"""The state of a star: plain JSON, with the reducers that merge the updates of parallel agents."""

import operator
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, NotRequired, TypedDict, cast

from starling.core.tool_calls import AnswerSource

GRAPH_VERSION = 5
"""The version of the state in checkpoints, of its graph and of LangGraph's format. Names of nodes and keys of the state
are append-only, so that later versions read what earlier ones wrote. Raise it where an earlier one can't read what this
one writes: its workers then leave the run to others."""

FORK_VERSION = 3
"""The version of a fork: earlier ones don't know what it begins with."""

CALL_VERSION = 4
"""The version of a run that is one tool call: earlier ones would ask a model."""


class ConversationMessage(TypedDict):
    """One message of the conversation, shortened."""

    role: Literal["user", "assistant"]
    content: str


class GraphTask(TypedDict):
    """A task of the plan and its status. `after_failure`: it was first planned after another one had failed.

    `agent` is empty where the results that it depends on decide first who does it. `removed` says why a pending one
    was taken out of the plan; its status is `failed` then.
    """

    id: str
    agent: str
    task: str
    depends_on: list[str]
    status: Literal["pending", "running", "approved", "failed"]
    after_failure: NotRequired[bool]
    removed: NotRequired[str]


class ToolUse(TypedDict):
    """A tool call and its status."""

    tool: str
    status: Literal["succeeded", "failed"]


class TrialUse(TypedDict):
    """A tool call of a trial, by the path of its task, and what answered it; `result` as a judge sees it."""

    tool: str
    path: str
    status: Literal["succeeded", "failed"]
    source: AnswerSource
    result: NotRequired[str]


class ArtifactRecord(TypedDict):
    """The whole of a result that was too long: `characters` of a call of the tool `name`; 0 for a binary part."""

    id: str
    name: str
    characters: int


class ResultCall(TypedDict):
    """A call that a result was made of; its own stands there from `start` to `end`, or is changed or inside a team.

    `artifact` has the whole of its own result, if that was too long.
    """

    call_id: str
    tool: str
    artifact: NotRequired[str]
    start: NotRequired[int]
    end: NotRequired[int]


class UncertainCall(TypedDict):
    """A tool call that may have been done, and what is known of it."""

    call: str
    reason: str


class SkillRecord(TypedDict):
    """A skill that a task's prompt had, and whether its calls were made in order."""

    id: str
    task: str
    followed: bool


class FactRecord(TypedDict):
    """A value that an approved task found; `call` is the id of the tool call that it is of."""

    key: str
    value: str | int | float | bool
    call: str


class DegradedPart(TypedDict):
    """A part of the request that was not answered; `task_id` if a task was meant to serve it, `code` why not."""

    part: str
    reason: str
    task_id: NotRequired[str]
    code: NotRequired[str]


class TaskOutcome(TypedDict):
    """The outcome of a task. `output` is empty if `status` is `failed`; `reason` gives the reason then.

    `code` names that reason. `unknown` means that a call with an effect was cut off: the task may be done
    nevertheless. `refused` has the reasons of calls that were not approved, which `reason` repeats. `uncertain` are
    the calls that may have been done and have no usable result; `done` those that succeeded, of a failed task.
    `degraded` are the parts that a team did not answer. `artifacts` hold results of which `output` has only
    the beginning, and their binary parts. `facts` are values for later tasks. `skills` were in the agent's prompt. In a
    trial, `calls` are those of all attempts, also inside a team; `tools` are only those that a result was made of.
    `result_calls` are the calls of these tools that succeeded.
    """

    task_id: str
    agent: str
    status: Literal["approved", "failed"]
    output: str
    reason: str
    attempts: int
    tools: list[ToolUse]
    code: NotRequired[str]
    unknown: NotRequired[bool]
    refused: NotRequired[list[str]]
    uncertain: NotRequired[list[UncertainCall]]
    done: NotRequired[list[str]]
    degraded: NotRequired[list[DegradedPart]]
    artifacts: NotRequired[list[ArtifactRecord]]
    facts: NotRequired[list[FactRecord]]
    skills: NotRequired[list[SkillRecord]]
    calls: NotRequired[list[TrialUse]]
    result_calls: NotRequired[list[ResultCall]]


class CitedCall(TypedDict):
    """A call whose result a source has; `artifact` has the whole of a long one."""

    call_id: str
    tool: str
    artifact: NotRequired[str]


class ExcerptRecord(TypedDict):
    """A part of a source, from `start` to `end` of what holds it: an artifact, else a call's result, else an output."""

    text: str
    start: int
    end: int
    call_id: NotRequired[str]
    artifact: NotRequired[str]


class CitationRecord(TypedDict):
    """The source of a numbered part of the answer, and the excerpts of it that the part rests on."""

    id: int
    task_id: str
    agent: str
    tools: list[str]
    calls: NotRequired[list[CitedCall]]
    excerpts: NotRequired[list[ExcerptRecord]]


class ClarificationRecord(TypedDict):
    """A question to the user and its answer, empty unless `state` is `resolved`; asked by which decision.

    It could be answered until `deadline`, in seconds since the epoch.
    """

    decision: int
    question: str
    answer: str
    state: Literal["resolved", "cancelled", "expired"]
    deadline: float


class Routing(TypedDict):
    """What the circuit breaker and the limits count; `direct` if the last decision was a direct reply.

    `unplanned`: no model decided, and the generalist has the request; if that fails, none is asked again.
    `qa_asked`: the final answer was a question once.
    `is_simple`: by the last decision, a small model can write the answer.
    `undecided` are the tasks without an agent whose dependencies were approved when it was made.
    `begins` is in the state that a fork begins with: what comes first, a decision or the tasks that are ready.
    """

    decisions: int
    plan_version: int
    failures_seen: int
    retry_count: int
    progress: str
    routed: list[str]
    reason: str
    direct: NotRequired[bool]
    is_simple: NotRequired[bool]
    unplanned: NotRequired[bool]
    qa_asked: NotRequired[bool]
    begins: NotRequired[Literal["decision", "tasks"]]
    undecided: NotRequired[list[str]]


def merge_tasks(known: Sequence[GraphTask], changed: Sequence[GraphTask]) -> list[GraphTask]:
    """Append new tasks; a record with a known id replaces the old one."""
    by_id = {task["id"]: task for task in known}
    return list((by_id | {task["id"]: task for task in changed}).values())


def latest[T](known: T, newer: T) -> T:
    """Take the newer value."""
    del known
    return newer


class GraphState(TypedDict):
    """The state of a run of a star. `initial_state` sets every required key."""

    input_request: str
    messages: Annotated[list[ConversationMessage], operator.add]
    tasks: Annotated[list[GraphTask], merge_tasks]
    results: Annotated[list[TaskOutcome], operator.add]
    plan: Annotated[list[str], latest]
    global_state: Annotated[dict[str, Any], operator.or_]
    citations: Annotated[list[CitationRecord], operator.add]
    next_step: list[str]
    assumptions: Annotated[list[str], latest]
    degraded: Annotated[list[DegradedPart], latest]
    routing: Annotated[Routing, latest]
    reply: str
    failure: str
    failure_code: NotRequired[str]
    given: NotRequired[list[TaskOutcome]]  # of a team: the results that its task depends on
    clarifications: NotRequired[
        Annotated[list[ClarificationRecord], operator.add]
    ]  # nothing is stored for a run that asks nothing


class TaskDispatch(TypedDict):
    """What one agent receives: its task and the parts of the state that it needs.

    `has_dependents`: a pending task depends on this one. `calls_before` is the number of tool calls that earlier tries
    of the task made. `is_simple` as in `Routing`.
    """

    input_request: str
    path: str
    messages: list[ConversationMessage]
    task: GraphTask
    whole_plan: bool
    needed: list[TaskOutcome]
    global_state: dict[str, Any]
    calls_before: NotRequired[int]
    has_dependents: NotRequired[bool]
    is_simple: NotRequired[bool]


type Update = dict[str, Any]
"""The update that a node returns: some keys of the state, for the reducers."""

APPENDED: Final = ("messages", "clarifications")  # what updates of supervisors and answers append to


def initial_state(request: str, history: Sequence[ConversationMessage] = ()) -> GraphState:
    """Return the state that a star begins with: the request, and the conversation before it."""
    return GraphState(
        input_request=request.strip(),
        messages=list(history),
        tasks=[],
        results=[],
        plan=[],
        global_state={},
        citations=[],
        next_step=[],
        assumptions=[],
        degraded=[],
        routing=Routing(decisions=0, plan_version=0, failures_seen=0, retry_count=0, progress="", routed=[], reason=""),
        reply="",
        failure="",
    )


def after(state: GraphState, update: Update) -> GraphState:
    """Return the state after `update`."""
    added = {name: [*state.get(name, ()), *update[name]] for name in APPENDED if name in update}
    tasks = merge_tasks(state["tasks"], update.get("tasks", []))
    return cast("GraphState", {**state, **update, **added, "tasks": tasks})


def both(first: Update, second: Update) -> Update:
    """Return the update that two of one step make, one after the other."""
    added = {name: [*first[name], *second[name]] for name in APPENDED if name in first and name in second}
    tasks = {"tasks": merge_tasks(first["tasks"], second["tasks"])} if "tasks" in first and "tasks" in second else {}
    return {**first, **second, **added, **tasks}


def approved(state: GraphState) -> dict[str, TaskOutcome]:
    """Return the approved outcome of each task that has one."""
    return {result["task_id"]: result for result in state["results"] if result["status"] == "approved"}


def is_answered_directly(state: GraphState) -> bool:
    """Whether the supervisor's own reply is the answer: it isn't once a task was tried."""
    return bool(state["routing"].get("direct")) and not state["tasks"]


def wanted(state: GraphState) -> str:
    """Return what results are read for: the request and all tasks."""
    return "\n".join([state["input_request"], *(task["task"] for task in state["tasks"])])


def failures(state: GraphState) -> int:
    """Return how many outcomes so far were failures."""
    return sum(result["status"] == "failed" for result in state["results"])


def ready_tasks(state: GraphState) -> list[GraphTask]:
    """Return the pending tasks that have an agent and whose dependencies are approved."""
    return [task for task in _unblocked(state) if task["agent"]]


def undecided(state: GraphState) -> list[str]:
    """Return the ids of pending tasks whose dependencies are approved, and for which no agent was chosen yet."""
    return [task["id"] for task in _unblocked(state) if not task["agent"]]


def _unblocked(state: GraphState) -> list[GraphTask]:
    done = approved(state).keys()
    return [task for task in state["tasks"] if task["status"] == "pending" and done >= set(task["depends_on"])]
