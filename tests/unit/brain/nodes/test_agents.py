"""The agents node: it runs the task's pipeline, and a task that waits for an answer suspends the graph."""

from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime

from brain.nodes.agents import AgentsNode
from brain.run.context import RunContext
from brain.state import TaskDispatch, TaskOutcome
from starling.core.errors import SuspendedError
from tests.support.in_memory_run import make_execution
from tests.support.runtime_harness import dispatch

SENT = dispatch("look", "bench")


class Failing:
    """A pipeline in which every task fails."""

    async def run(self, context: RunContext, dispatch: TaskDispatch) -> TaskOutcome:
        del context
        task = dispatch["task"]
        return TaskOutcome(
            task_id=task["id"], agent=task["agent"], status="failed", output="", reason="No.", attempts=1, tools=[]
        )


class Waiting:
    """A pipeline in which every task waits for two answers."""

    async def run(self, context: RunContext, dispatch: TaskDispatch) -> TaskOutcome:
        raise SuspendedError("first", "second")


async def test_update_carries_the_outcome_and_the_tasks_new_status() -> None:
    update = await AgentsNode(Failing())(SENT, Runtime(context=make_execution().context))

    assert update["tasks"] == [{**SENT["task"], "status": "failed"}]
    assert [result["reason"] for result in update["results"]] == ["No."]


async def test_suspended_task_interrupts_the_graph_with_the_ids_of_its_questions() -> None:
    graph: StateGraph[TaskDispatch, RunContext, TaskDispatch, TaskDispatch] = StateGraph(TaskDispatch, RunContext)
    graph.add_node("agents", AgentsNode(Waiting()))
    graph.add_edge(START, "agents")
    graph.add_edge("agents", END)

    reached = await graph.compile().ainvoke(SENT, context=make_execution().context)

    assert [item.value for item in reached["__interrupt__"]] == [["first", "second"]]
