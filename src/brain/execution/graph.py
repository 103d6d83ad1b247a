"""The one builder of stars, of the main one and of every team's: the same graph for any star spec."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime
from langgraph.types import Send

from brain.nodes.agents import AgentsNode, TaskPipeline
from brain.nodes.qa import Qa
from brain.nodes.supervisor import SupervisorNode
from brain.run.context import RunContext
from brain.state import GraphState, TaskDispatch, TaskRecord, Update, after, approved
from starling.core.teams.stars import StarSpec

QA = "qa"
FORMER_FIRST_NODE = "preprocess"

type Star = CompiledStateGraph[GraphState, RunContext, GraphState, GraphState]


@dataclass(frozen=True, slots=True)
class StarNodes:
    """What stars are built of; each star's own supervisor is `supervisor` with the star's spec."""

    supervisor: SupervisorNode
    pipeline: TaskPipeline
    qa: Qa


@dataclass(frozen=True, slots=True)
class SupervisorTurn:
    """The supervisor's turn, with the final answer where no task comes next: a step less than a node of its own."""

    supervisor: SupervisorNode
    qa: Qa

    async def __call__(self, state: GraphState, runtime: Runtime[RunContext]) -> Update:
        """Return the supervisor's update, or that of both."""
        update = await self.supervisor(state, runtime)
        return update if update["next_step"] else update | await self.qa(after(state, update), runtime)


def build_star(spec: StarSpec, nodes: StarNodes) -> Star:
    """Return the compiled star of a spec: supervisor and agents in turn, until a turn ends with the answer.

    Its agents are data in the roster of the context that it is executed with.
    """
    graph: StateGraph[GraphState, RunContext, GraphState, GraphState] = StateGraph(GraphState, RunContext)
    graph.add_node("supervisor", SupervisorTurn(replace(nodes.supervisor, star=spec), nodes.qa))
    graph.add_node("agents", AgentsNode(nodes.pipeline))
    graph.add_edge(START, "supervisor")
    graph.add_conditional_edges("supervisor", route, ["agents", END])
    graph.add_edge("agents", "supervisor")
    if not spec.name:
        # the nodes that only a checkpoint of an earlier version names as the next one
        graph.add_node(FORMER_FIRST_NODE, _add_history)
        graph.add_edge(FORMER_FIRST_NODE, "supervisor")
        graph.add_node(QA, nodes.qa)
        graph.add_edge(QA, END)
    return graph.compile()


async def _add_history(state: GraphState, runtime: Runtime[RunContext]) -> Update:
    return {"input_request": state["input_request"].strip(), "messages": list(runtime.context.history)}


async def route(state: GraphState) -> Sequence[Send] | str:
    """Send each selected task to an agent, or end. Async, or it would run in a thread."""
    chosen = [task for task in state["tasks"] if task["id"] in state["next_step"]]
    return [Send("agents", _dispatch(state, task)) for task in chosen] or END


def _dispatch(state: GraphState, task: TaskRecord) -> TaskDispatch:
    done = approved(state)
    tries = [result for result in state["results"] if result["task_id"] == task["id"]]
    return TaskDispatch(
        input_request=state["input_request"],
        path=task["id"] if not tries else f"{task['id']}.{len(tries) + 1}",
        messages=state["messages"],
        task=task,
        whole_plan=len(state["tasks"]) == 1 and not state["degraded"],
        needed=[*state.get("given", []), *(done[task_id] for task_id in task["depends_on"] if task_id in done)],
        global_state=state["global_state"],
        calls_before=sum(len(result["tools"]) for result in tries),
    )
