"""Steps of the supervisor node without a graph: the node, the states that it is given, and its agents."""

from collections.abc import Sequence
from typing import Any

from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime

from brain.nodes.supervisor import SupervisorNode
from brain.planning.shortlist import Shortlister
from brain.registry.cards import AgentCard
from brain.retrieval.agent_finder import AgentFinder
from brain.run.context import RunContext
from brain.state import GraphState, GraphTask, TaskOutcome, Update, after, initial_state
from starling.core.clock import SystemClock
from starling.core.embeddings import CachingEmbedder
from starling.core.settings.schema import Limits
from starling.core.tracing import NOOP_TRACER
from tests.support.in_memory_run import Execution, ScriptedAnswer, make_execution

REQUEST = "How is the disk?"
BENCH = AgentCard("bench", "specialist", "Looks at things.", server="bench")
AGENTS = (BENCH, AgentCard("away", "specialist", "Is away.", server="away", degraded="The server is away."))


class Sessions:
    """Remembers which servers were warmed."""

    def __init__(self) -> None:
        self.warmed: list[str] = []

    def warm(self, server: str) -> None:
        self.warmed.append(server)


def supervisor(
    sessions: Sessions | None = None,
    *,
    embedder: CachingEmbedder | None = None,
    parallel_tasks: int = 8,
    **limits: Any,
) -> SupervisorNode:
    given = Limits(**limits)
    shortlister = Shortlister(AgentFinder(embedder, SystemClock()), given.shortlist, NOOP_TRACER)
    return SupervisorNode(given, shortlister, sessions or Sessions(), NOOP_TRACER, parallel_tasks=parallel_tasks)


async def step(node: SupervisorNode, state: GraphState, execution: Execution) -> Update:
    return await node(state, Runtime(context=execution.context))


async def decide(
    *answers: ScriptedAnswer,
    state: GraphState | str = REQUEST,
    node: SupervisorNode | None = None,
    agents: Sequence[AgentCard] = AGENTS,
    **fields: Any,
) -> tuple[Update, Execution]:
    """Execute the node with a model that gives these answers; `state` may be a request that nothing was decided on.

    `fields` are those of `make_execution`.
    """
    execution = make_execution(*answers, agents=agents, **fields)
    begun = initial_state(state) if isinstance(state, str) else state
    return await step(node or supervisor(), begun, execution), execution


async def suspended(execution: Execution, state: GraphState | None = None, **limits: Any) -> list[str]:
    """Run the node in a graph of its own and return the ids of the interrupts that it waits for."""
    graph: StateGraph[GraphState, RunContext, GraphState, GraphState] = StateGraph(GraphState, RunContext)
    graph.add_node("supervisor", supervisor(**limits))
    graph.add_edge(START, "supervisor")
    graph.add_edge("supervisor", END)
    reached = await graph.compile().ainvoke(state or initial_state(REQUEST), context=execution.context)
    return [key for item in reached["__interrupt__"] for key in item.value]


def record(task_id: str, status: Any = "pending", *after: str) -> GraphTask:
    return GraphTask(id=task_id, agent="bench", task=f"do {task_id}", depends_on=list(after), status=status)


def outcome(task_id: str, status: Any = "approved", **fields: Any) -> TaskOutcome:
    output, reason = ("fine", "") if status == "approved" else ("", "It broke.")
    return TaskOutcome(
        task_id=task_id, agent="bench", status=status, output=output, reason=reason, attempts=1, tools=[], **fields
    )


def planned(*tasks: GraphTask, results: list[TaskOutcome] | None = None, **routing: Any) -> GraphState:
    """The state after one decision that planned these tasks."""
    begun = initial_state(REQUEST)
    update = {"tasks": list(tasks), "results": results or [], "plan": ["look"]}
    return after(begun, update | {"routing": begun["routing"] | {"decisions": 1, "plan_version": 1} | routing})


FAILED = planned(record("t1", "failed"), results=[outcome("t1", "failed")])
