"""What a fork inherits, and the state that it begins with, by the journal of its original."""

from typing import Any, cast

import pytest

from brain.durability.inheritance import INHERITED, decision_record, folded, inherited_entries
from brain.state import GraphState, GraphTask, TaskOutcome, after, initial_state
from starling.core.errors import InvalidRequestError
from starling.core.forks import NotForkableError
from starling.infra.postgres.runs.writer import JournalEntry


def planned(task_id: str, *needed: str) -> GraphTask:
    return {"id": task_id, "agent": "a", "task": f"do {task_id}", "depends_on": list(needed), "status": "running"}


def outcome(task_id: str, status: Any = "approved") -> TaskOutcome:
    return TaskOutcome(task_id=task_id, agent="a", status=status, output="done", reason="", attempts=1, tools=[])


def decided(state: GraphState, *tasks: GraphTask, **more: Any) -> tuple[dict[str, Any], GraphState]:
    """Return the record of a decision for these tasks, and the state after it."""
    routing = {**state["routing"], "decisions": state["routing"]["decisions"] + 1}
    update: dict[str, Any] = {"tasks": list(tasks), "next_step": [task["id"] for task in tasks], "routing": routing}
    return decision_record(state, update | more), after(state, update | more)


def entry(path: str, data: Any) -> JournalEntry:
    return JournalEntry(path, "result", 0, 0, "", data)


def journal() -> list[JournalEntry]:
    """Two tries of t1: the first failed, decision 2 planned it again; t3 needs both others, and failed at last."""
    state = initial_state("Do it.")
    first, state = decided(state, planned("t1"), planned("t2"), planned("t3", "t1", "t2"), plan=["all"])
    state["results"] += [outcome("t1", "failed"), outcome("t2")]
    second, state = decided(state, planned("t1"), plan=["again"])
    state["results"] += [outcome("t1"), outcome("t3", "failed")]
    last = decision_record(state, {"next_step": [], "routing": state["routing"]})
    return [
        entry("supervisor/1", first),
        entry("t1", outcome("t1", "failed")),
        entry("t2", outcome("t2")),
        entry("supervisor/2", second),
        entry("t1.2", outcome("t1")),
        entry("t3", outcome("t3", "failed")),
        entry("supervisor/3", last),
    ]


def inherited(at: str, entries: list[JournalEntry] | None = None) -> list[JournalEntry]:
    """Return what a fork's journal has, as it is copied."""
    found = inherited_entries(journal() if entries is None else entries, at)
    return [JournalEntry(one.path, INHERITED, number, 0, "", one.data) for number, one in enumerate(found, start=1)]


@pytest.mark.parametrize(
    ("at", "paths"),
    [
        ("start", []),
        ("d1", []),
        ("d2", ["supervisor/1", "t1", "t2"]),
        ("d3", ["supervisor/1", "supervisor/2", "t1", "t2", "t1.2", "t3"]),
        ("t1", ["supervisor/1", "supervisor/2", "t2"]),
        ("t2", ["supervisor/1", "t1"]),
        ("t3", ["supervisor/1", "supervisor/2", "t1", "t2", "t1.2"]),
    ],
)
def test_fork_inherits_what_came_before_its_place(at: str, paths: list[str]) -> None:
    assert [one.path for one in inherited(at)] == paths


@pytest.mark.parametrize(
    ("at", "status", "failures_seen", "begins"),
    [
        ("d2", {"t1": "failed", "t2": "approved", "t3": "pending"}, 0, "decision"),
        ("d3", {"t1": "approved", "t2": "approved", "t3": "failed"}, 1, "decision"),
        ("t1", {"t1": "pending", "t2": "approved", "t3": "pending"}, 0, "tasks"),
        ("t3", {"t1": "approved", "t2": "approved", "t3": "pending"}, 1, "tasks"),
    ],
)
def test_state_of_a_fork_is_that_of_its_original_there(
    at: str, status: dict[str, str], failures_seen: int, begins: str
) -> None:
    state = folded(inherited(at), initial_state("Do it."), at)

    assert {task["id"]: task["status"] for task in state["tasks"]} == status
    routing = state["routing"]
    assert (routing["failures_seen"], routing.get("begins")) == (failures_seen, begins)
    assert state["plan"] == (["all"] if at == "d2" else ["again"])


def test_fork_of_a_fork_inherits_from_both() -> None:
    own = [entry("t3", outcome("t3"))]

    assert [one.path for one in inherited("t3", [*inherited("t3"), *own])] == [one.path for one in inherited("t3")]


@pytest.mark.parametrize("at", ["t2", "t3"])
def test_task_that_waits_for_a_failed_one_is_no_place(at: str) -> None:
    first, state = decided(initial_state("Do it."), planned("t1"), planned("t2", "t1"), planned("t3", "t2"))
    state["results"] += [outcome("t1", "failed")]
    last = decision_record(state, {"next_step": [], "routing": state["routing"]})
    entries = [entry("supervisor/1", first), entry("t1", outcome("t1", "failed")), entry("supervisor/2", last)]

    with pytest.raises(InvalidRequestError, match="task 't1', which it depends on, failed"):
        inherited_entries(entries, at)
    assert [one.path for one in inherited_entries(entries, "t1")] == ["supervisor/1"]


def test_outcome_of_a_member_of_a_team_is_none_of_the_main_plan() -> None:
    first, state = decided(initial_state("Do it."), planned("t1"), planned("t2", "t1"))
    state["results"] += [outcome("t1"), outcome("t2")]
    last = decision_record(state, {"next_step": [], "routing": state["routing"]})
    member = outcome("t2") | {"output": "of a member"}
    entries = [
        entry("supervisor/1", first),
        entry("t1/t2", member),
        entry("t1", outcome("t1")),
        entry("t2", outcome("t2")),
        entry("t2/t1", member),
        entry("supervisor/2", last),
    ]

    assert [one.path for one in inherited("t2", entries)] == ["supervisor/1", "t1"]
    state = folded(inherited("d2", entries), initial_state("Do it."), "d2")
    assert [(result["task_id"], result["output"]) for result in state["results"]] == [("t1", "done"), ("t2", "done")]


def test_answered_question_is_a_decision() -> None:
    state = initial_state("Do it.", [{"role": "user", "content": "earlier"}])
    asked = {"clarifications": [{"question": "Which?"}], "messages": [{"role": "user", "content": "The red one."}]}
    update: Any = {**asked, "assumptions": [], "routing": {**state["routing"], "decisions": 1}}
    entries = [entry("supervisor/1", decision_record(state, update)), entry("supervisor/2", {})]

    found = folded(inherited("d2", entries), state, "d2")

    assert [message["content"] for message in found["messages"]] == ["earlier", "The red one."]
    assert found.get("clarifications") == cast("object", asked["clarifications"])
    assert found["routing"]["decisions"] == 1


@pytest.mark.parametrize(
    ("at", "missing", "error"),
    [
        ("t9", "", InvalidRequestError),
        ("d4", "", InvalidRequestError),
        ("t1/t1", "", InvalidRequestError),
        ("t3", "t2", NotForkableError),
        ("d2", "supervisor/1", NotForkableError),
        ("t3", "supervisor", NotForkableError),
    ],
)
def test_place_that_there_is_not_or_that_is_not_kept(at: str, missing: str, error: type[Exception]) -> None:
    kept = [one for one in journal() if not missing or not one.path.startswith(missing)]

    with pytest.raises(error):
        inherited_entries(kept, at)
