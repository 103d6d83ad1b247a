"""The reducers that bring parallel agents together."""

import json
from typing import Any

from brain.state import GraphTask, TaskOutcome, after, approved, failures, initial_state, merge_tasks, ready_tasks


def task(task_id: str, status: Any = "pending", *needs: str) -> GraphTask:
    return GraphTask(id=task_id, agent="able", task="do it", depends_on=list(needs), status=status)


def outcome(task_id: str, status: Any, output: str = "") -> TaskOutcome:
    return TaskOutcome(task_id=task_id, agent="able", status=status, output=output, reason="", attempts=1, tools=[])


def test_newer_task_record_replaces_the_older_one() -> None:
    merged = merge_tasks([task("t1"), task("t2")], [task("t3"), task("t1", "approved")])

    assert merged == [task("t1", "approved"), task("t2"), task("t3")]


def test_a_task_is_ready_once_all_that_it_needs_is_approved() -> None:
    state = initial_state("Hi.")
    state["tasks"] = [
        task("t1", "approved"),
        task("t2", "failed"),
        task("t3", "pending", "t1"),
        task("t4", "pending", "t1", "t2"),
    ]
    state["results"] = [outcome("t1", "approved"), outcome("t2", "failed")]

    assert [item["id"] for item in ready_tasks(state)] == ["t3"]
    assert failures(state) == 1


def test_a_later_approval_counts_and_an_earlier_failure_too() -> None:
    state = initial_state("Hi.")
    state["results"] = [outcome("t1", "failed"), outcome("t1", "approved", "done")]

    assert approved(state) == {"t1": outcome("t1", "approved", "done")}
    assert failures(state) == 1


def test_an_update_leaves_the_state_before_it_alone() -> None:
    state = initial_state("Hi.")

    later = after(state, {"tasks": [task("t1")], "plan": ["do it"]})

    assert (state["tasks"], state["plan"]) == ([], [])
    assert ([item["id"] for item in later["tasks"]], later["plan"]) == (["t1"], ["do it"])


def test_a_state_is_plain_json() -> None:
    state = initial_state("Hi.")

    assert json.loads(json.dumps(state)) == state
