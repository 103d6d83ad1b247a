"""The one builder of stars. A star's agents are data in its roster, so its graph never changes."""

from collections.abc import Sequence

from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Send

from brain.nodes.agents import Agents, TaskPipeline
from brain.nodes.preprocess import Preprocess
from brain.nodes.qa import Qa
from brain.nodes.supervisor import Supervisor
from brain.run_context import RunContext
from brain.state import Dispatch, GraphState, TaskRecord, approved

QA = "qa"

type Star = CompiledStateGraph[GraphState, RunContext, GraphState, GraphState]


def build_star(supervisor: Supervisor, pipeline: TaskPipeline, qa: Qa) -> Star:
    """Return a compiled star: preprocess, then supervisor and agents in turn, then qa."""
    graph: StateGraph[GraphState, RunContext, GraphState, GraphState] = StateGraph(GraphState, RunContext)
    graph.add_node("preprocess", Preprocess())
    graph.add_node("supervisor", supervisor)
    graph.add_node("agents", Agents(pipeline))
    graph.add_node(QA, qa)
    graph.add_edge(START, "preprocess")
    graph.add_edge("preprocess", "supervisor")
    graph.add_conditional_edges("supervisor", route, ["agents", QA])
    graph.add_edge("agents", "supervisor")
    graph.add_edge(QA, END)
    return graph.compile()


async def route(state: GraphState) -> Sequence[Send] | str:
    """Send each selected task to an agent, or go on to QA. Async, or it would run in a thread."""
    chosen = [task for task in state["tasks"] if task["id"] in state["next_step"]]
    return [Send("agents", _dispatch(state, task)) for task in chosen] or QA


def _dispatch(state: GraphState, task: TaskRecord) -> Dispatch:
    done = approved(state)
    earlier = sum(result["task_id"] == task["id"] for result in state["results"])
    return Dispatch(
        input_request=state["input_request"],
        path=task["id"] if not earlier else f"{task['id']}.{earlier + 1}",
        messages=state["messages"],
        task=task,
        whole_plan=len(state["tasks"]) == 1 and not state["degraded"],
        needed=[done[task_id] for task_id in task["depends_on"] if task_id in done],
        global_state=state["global_state"],
    )
