"""What the star sends to agents: the selected tasks, each with what it needs of the state."""

from typing import Any

from langgraph.graph import END
from langgraph.types import Send

from brain.execution.graph import QA, route
from brain.state import GraphState, GraphTask, TaskOutcome, after, initial_state


def record(task_id: str, *after: str) -> GraphTask:
    return GraphTask(id=task_id, agent="bench", task=f"do {task_id}", depends_on=list(after), status="running")


def outcome(task_id: str, status: Any) -> TaskOutcome:
    return TaskOutcome(
        task_id=task_id, agent="bench", status=status, output=f"{task_id} is done", reason="", attempts=1, tools=[]
    )


async def sent(state: GraphState) -> list[Any]:
    routed = await route(state)
    assert not isinstance(routed, str)
    assert all(isinstance(one, Send) and one.node == "agents" for one in routed)
    return [one.arg for one in routed]


async def test_state_without_selected_tasks_ends() -> None:
    assert await route(after(initial_state("Hi."), {"tasks": [record("t1")]})) == END


async def test_selected_tasks_are_sent_with_the_results_that_they_depend_on() -> None:
    tasks = [record("t1"), record("t2"), record("t3", "t1"), record("t4")]
    results = [outcome("t1", "approved"), outcome("t2", "approved")]

    dispatches = await sent(
        after(initial_state("Hi."), {"tasks": tasks, "results": results, "next_step": ["t3", "t4"]})
    )

    assert [[item["output"] for item in one["needed"]] for one in dispatches] == [["t1 is done"], []]


async def test_second_try_of_a_task_has_a_path_of_its_own() -> None:
    state = {"tasks": [record("t1")], "results": [outcome("t1", "failed")], "next_step": ["t1"]}

    [dispatch] = await sent(after(initial_state("Hi."), state))

    assert dispatch["path"] == "t1.2"


async def test_task_named_like_a_node_is_sent_to_an_agent() -> None:
    [dispatch] = await sent(after(initial_state("Hi."), {"tasks": [record(QA)], "next_step": [QA]}))

    assert (dispatch["path"], dispatch["whole_plan"]) == (QA, True)


async def test_one_of_several_tasks_is_not_the_whole_plan() -> None:
    tasks = [record("t1"), record("t2")]

    dispatches = await sent(after(initial_state("Hi."), {"tasks": tasks, "next_step": ["t1", "t2"]}))

    assert [one["whole_plan"] for one in dispatches] == [False, False]
