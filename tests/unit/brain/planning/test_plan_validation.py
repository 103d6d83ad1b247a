"""Which tasks of a plan are accepted, which are rejected and why."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from brain.planning.decision import Assignment, Decision
from brain.planning.plan_validation import (
    UNDECIDED,
    UNREACHED,
    PlanningContext,
    RejectedTask,
    accepted_tasks,
    decision_errors,
    degraded_parts,
)
from brain.registry.cards import AgentCard, Roster
from brain.state import DegradedPart, GraphState, GraphTask, TaskOutcome, after, initial_state
from starling.core.tool_calls import Effect
from starling.core.tools import ToolDefinition

ROSTER = Roster(
    {
        "able": AgentCard("able", "specialist", "Can do it."),
        "ill": AgentCard("ill", "specialist", "Could do it.", server="ill", degraded="The server is away."),
        "off": AgentCard("off", "specialist", "Could do it.", server="off", degraded="off is switched off: Why."),
    }
)
ALL_AGENTS = Roster({**ROSTER.cards, "hidden": AgentCard("hidden", "specialist", "Not granted.")})


TIME = ToolDefinition("time", "get_current_time", "Tells the time.", {}, None, Effect.READ, "h")
SPECIALISTS = Roster(
    {
        "mcp_agent_time": AgentCard("mcp_agent_time", "specialist", "", server="time", tools=(TIME,)),
        "mcp_agent_test_db": AgentCard("mcp_agent_test_db", "specialist", "", server="test_db"),
        "mcp_agent_prod_db": AgentCard("mcp_agent_prod_db", "specialist", "", server="prod_db"),
    }
)


def assignment(task_id: str, *after: str, agent: str = "able") -> Assignment:
    return Assignment(task_id=task_id, agent=agent, task=f"do {task_id}", depends_on=list(after))


def decision(*assignments: Assignment, **fields: Any) -> Decision:
    rest: dict[str, Any] = {"thought_process": "", "plan": [], "reply": "", "assumptions": [], "unserved": []}
    flags = dict.fromkeys(("is_request_satisfied", "is_in_loop", "is_progress_being_made"), False)
    return Decision.model_validate({**rest, **flags, "selected_agents": assignments, **fields})


def record(task_id: str, status: Any = "pending", *after: str) -> GraphTask:
    return GraphTask(id=task_id, agent="able", task=f"do {task_id}", depends_on=list(after), status=status)


def outcome(task_id: str, status: Any) -> TaskOutcome:
    return TaskOutcome(
        task_id=task_id, agent="able", status=status, output="", reason="It broke.", attempts=1, tools=[]
    )


def state(*tasks: GraphTask, results: list[TaskOutcome] | None = None, **more: Any) -> GraphState:
    return after(initial_state("Hi."), {"tasks": list(tasks), "results": results or [], **more})


def ids(tasks: list[GraphTask]) -> list[str]:
    return [task["id"] for task in tasks]


@pytest.mark.parametrize(
    "written", ["time", "mcp-agent-time", "MCP_AGENT_TIME", "get_current_time", "time.get_current_time"]
)
def test_unambiguous_name_of_an_agent_or_tool_resolves_to_the_agent(written: str) -> None:
    planned = decision(assignment("t1", agent=written))

    tasks, rejected = accepted_tasks(planned, PlanningContext(SPECIALISTS))

    assert ([task["agent"] for task in tasks], rejected) == (["mcp_agent_time"], [])
    assert decision_errors(planned, PlanningContext(SPECIALISTS)) == []


def test_ambiguous_name_is_an_error_that_names_both_agents() -> None:
    [error] = decision_errors(decision(assignment("t1", agent="db")), PlanningContext(SPECIALISTS))

    assert error.startswith("t1: There is no agent 'db'. Did you mean ")
    assert {"mcp_agent_test_db", "mcp_agent_prod_db"} <= {*error.rstrip("?").split()}
    assert "mcp_agent_time" not in error


def test_valid_tasks_are_accepted_unchanged() -> None:
    tasks, rejected = accepted_tasks(decision(assignment("t1"), assignment("t2", "t1", "t1")), PlanningContext(ROSTER))

    assert tasks == [record("t1"), record("t2", "pending", "t1")]
    assert rejected == []


@pytest.mark.parametrize(
    ("wanted", "code", "reason"),
    [
        (assignment("t1", agent="nobody"), "unknown_agent", "There is no agent 'nobody'."),
        (assignment("t1", agent="hidden"), "not_granted", "There is no agent 'hidden'."),
        (assignment("t1", agent="ill"), "server_unavailable", "The server is away."),
        (assignment("t1", agent="off"), "switched_off", "off is switched off: Why."),
        (assignment("t1", "t9"), "bad_dependency", "It depends on t9, which isn't in the plan."),
        (
            assignment("t1", "t1"),
            "bad_dependency",
            "It is in, or depends on, a cycle of tasks that depend on each other.",
        ),
    ],
    ids=["unknown", "not allowed", "degraded", "switched off", "missing", "itself"],
)
def test_task_that_cannot_be_done_is_rejected_with_the_reason(wanted: Assignment, code: str, reason: str) -> None:
    planning = PlanningContext(ROSTER, all_agents=ALL_AGENTS, switched_off={"off"})

    tasks, rejected = accepted_tasks(decision(wanted, assignment("t2")), planning)

    assert ids(tasks) == ["t2"]
    assert rejected == [RejectedTask("t1", "do t1", reason, wanted.agent, code)]


def test_task_that_depends_on_a_rejected_one_is_rejected() -> None:
    wanted = decision(assignment("t3", "t2"), assignment("t2", "t1"), assignment("t1", agent="ill"), assignment("t4"))

    tasks, rejected = accepted_tasks(wanted, PlanningContext(ROSTER))

    assert ids(tasks) == ["t4"]
    assert [item.reason for item in rejected] == [
        *["It depends on a task that can't be done."] * 2,
        "The server is away.",
    ]


@pytest.mark.parametrize("status", ["approved", "running"])
def test_approved_or_running_task_is_not_changed_by_a_new_plan(status: str) -> None:
    known = [record("t1", status)]

    tasks, rejected = accepted_tasks(
        decision(assignment("t1", agent="nobody"), assignment("t2", "t1")), PlanningContext(ROSTER, known)
    )

    assert ids(tasks) == ["t2"]
    assert rejected == []


def test_failed_task_can_be_assigned_again_but_not_depended_on() -> None:
    known = [record("t1", "failed")]

    renewed, _ = accepted_tasks(decision(assignment("t1")), PlanningContext(ROSTER, known))
    _, waiting = accepted_tasks(decision(assignment("t2", "t1")), PlanningContext(ROSTER, known))

    assert renewed == [record("t1")]
    reason = "It depends on t1, which isn't in the plan."
    assert waiting == [RejectedTask("t2", "do t2", reason, "able", "bad_dependency")]


def test_new_task_can_depend_on_a_pending_one_but_not_in_a_cycle() -> None:
    known = [record("t1", "failed"), record("t2", "pending", "t1")]

    tasks, rejected = accepted_tasks(decision(assignment("t1"), assignment("t3", "t2")), PlanningContext(ROSTER, known))
    _, circle = accepted_tasks(decision(assignment("t1", "t2"), assignment("t3")), PlanningContext(ROSTER, known))

    assert (ids(tasks), rejected) == (["t1", "t3"], [])
    assert [item.part for item in circle] == ["do t1"]


def test_decision_with_one_id_for_two_tasks_is_invalid() -> None:
    with pytest.raises(ValidationError, match="t1 is given more than once"):
        decision(assignment("t1"), assignment("t1"))


@pytest.mark.parametrize("task_id", ["start", "d2"])
def test_task_named_as_a_place_of_forks_is_invalid(task_id: str) -> None:
    with pytest.raises(ValidationError, match=f"but {task_id} is given"):
        decision(assignment("t1"), assignment(task_id))


NAMES = st.sampled_from(["t1", "t2", "t3", "t4", "t5", "t6"])
ASSIGNMENTS = st.builds(
    Assignment,
    task_id=NAMES,
    agent=st.sampled_from(["able", "able", "able", "ill", "nobody"]),
    task=st.uuids().map(str),
    depends_on=st.lists(NAMES, max_size=3),
)


@given(st.lists(ASSIGNMENTS, unique_by=lambda item: item.task_id))
def test_any_plan_splits_into_executable_and_rejected_tasks(wanted: list[Assignment]) -> None:
    tasks, rejected = accepted_tasks(decision(*wanted), PlanningContext(ROSTER))

    done: set[str] = set()
    while ready := [task for task in tasks if task["id"] not in done and done >= set(task["depends_on"])]:
        done |= {task["id"] for task in ready}
    assert done == set(ids(tasks))
    assert sorted([*(task["task"] for task in tasks), *(item.part for item in rejected)]) == sorted(
        item.task for item in wanted
    )


def test_failed_and_unreached_tasks_are_each_named_once() -> None:
    known = [{"part": "do t1", "reason": "It was known before."}]
    tasks = [record("t1", "failed"), record("t2", "failed"), record("t3", "pending", "t2"), record("t4", "approved")]

    parts = degraded_parts(state(*tasks, results=[outcome("t2", "failed")], degraded=known))

    assert parts == [
        *known,
        {"part": "do t2", "reason": "It broke.", "task_id": "t2"},
        {"part": "do t3", "reason": UNREACHED, "task_id": "t3"},
    ]


def test_task_that_never_ran_is_not_named_where_the_reason_for_it_is_empty() -> None:
    tasks = [record("t1", "failed"), record("t2")]

    parts = degraded_parts(state(*tasks, results=[outcome("t1", "failed")]), unreached="")

    assert [part["part"] for part in parts] == ["do t1"]


def test_refused_task_is_named_once_under_another_text() -> None:
    refused: list[DegradedPart] = [{"part": "do it again", "reason": "It isn't done again.", "task_id": "t1"}]

    parts = degraded_parts(state(record("t1", "failed"), results=[outcome("t1", "failed")], degraded=refused))

    assert parts == refused


@pytest.mark.parametrize(
    ("wanted", "fault"),
    [
        (assignment("t1", agent="nobody"), "t1: There is no agent 'nobody'. The agents are: able, ill, off."),
        (assignment("t1", "t9"), "t1: depends_on names t9, which isn't in the plan."),
    ],
    ids=["agent", "dependency"],
)
def test_unknown_agent_or_dependency_is_an_error_for_the_repair(wanted: Assignment, fault: str) -> None:
    assert decision_errors(decision(wanted, assignment("t2", "t1")), PlanningContext(ROSTER)) == [fault]


def test_valid_plan_and_plan_for_a_degraded_agent_have_no_error() -> None:
    wanted = decision(assignment("t1"), assignment("t2", "t1"), assignment("t3", agent="ill"))

    assert decision_errors(wanted, PlanningContext(ROSTER)) == []


@pytest.mark.parametrize(
    ("again", "refused"),
    [
        (assignment("t1"), True),
        (assignment("t5").model_copy(update={"task": "do t1"}), True),
        (assignment("t5"), False),
        (assignment("t1", agent="other"), False),
    ],
    ids=["same id", "same text", "another task", "another agent"],
)
def test_task_with_an_uncertain_effect_is_not_assigned_to_the_same_agent_again(
    again: Assignment, *, refused: bool
) -> None:
    roster = Roster({**ROSTER.cards, "other": AgentCard("other", "specialist", "Can look.")})
    unsure: TaskOutcome = {**outcome("t1", "failed"), "reason": "Check the door.", "unknown": True}

    tasks, rejected = accepted_tasks(decision(again), PlanningContext(roster, [record("t1", "failed")], [unsure]))

    assert [item.reason for item in rejected] == ["It isn't done again. Check the door."] * refused
    assert len(tasks) == (not refused)


@pytest.mark.parametrize(
    ("needed", "unreached", "reason"),
    [("approved", UNREACHED, UNDECIDED), ("failed", UNREACHED, UNREACHED), ("approved", "It is late.", "It is late.")],
)
def test_task_without_an_agent_says_what_it_waited_for(needed: Any, unreached: str, reason: str) -> None:
    tasks: list[GraphTask] = [record("t1", needed), {**record("t2", "pending", "t1"), "agent": ""}]

    parts = degraded_parts(state(*tasks, results=[outcome("t1", needed)]), unreached)

    assert next(part["reason"] for part in parts if part.get("task_id") == "t2") == reason
