"""Stars, the main one and every team's: built of a star spec, and executed inside runs."""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Final

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config
from langgraph.errors import GraphDrained
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import RunControl, Runtime
from langgraph.types import Send

from brain.nodes.agents import AgentsNode, TaskPipeline
from brain.nodes.qa import Qa
from brain.nodes.supervisor import SupervisorNode
from brain.run.context import RunContext
from brain.state import GraphState, GraphTask, TaskDispatch, Update, after, approved, both
from starling.core.errors import SuspendedError
from starling.core.teams.stars import StarSpec

QA = "qa"
FORMER_FIRST_NODE = "preprocess"

type Star = CompiledStateGraph[GraphState, RunContext, GraphState, GraphState]


@dataclass(frozen=True, slots=True)
class SupervisorTurn:
    """The supervisor's turn, with the final answer where no task comes next: a step less than a node of its own."""

    supervisor: SupervisorNode
    qa: Qa

    async def __call__(self, state: GraphState, runtime: Runtime[RunContext]) -> Update:
        """Return the supervisor's update, or that of both; where the user answered a question, the next turn's, too."""
        update = await self.supervisor(state, runtime)
        if update["next_step"]:
            return update
        reached = after(state, update)
        answer = await self.qa(reached, runtime)
        update = both(update, answer)
        return update if "reply" in answer else both(update, await self(after(reached, answer), runtime))


def build_star(spec: StarSpec, supervisor: SupervisorNode, pipeline: TaskPipeline, qa: Qa) -> Star:
    """Return the compiled star of a spec: supervisor and agents in turn, until a turn ends with the answer.

    Its supervisor is `supervisor` with the spec; its agents are data in the roster of the context of an execution.
    """
    graph: StateGraph[GraphState, RunContext, GraphState, GraphState] = StateGraph(GraphState, RunContext)
    graph.add_node("supervisor", SupervisorTurn(replace(supervisor, star=spec), qa))
    graph.add_node("agents", AgentsNode(pipeline))
    graph.add_edge(START, "supervisor")
    graph.add_conditional_edges("supervisor", route, ["agents", END])
    graph.add_edge("agents", "supervisor")
    if not spec.name:
        # the nodes that only a checkpoint of an earlier version names as the next one
        graph.add_node(FORMER_FIRST_NODE, _add_history)
        graph.add_edge(FORMER_FIRST_NODE, "supervisor")
        graph.add_node(QA, qa)
        graph.add_edge(QA, END)
    return graph.compile()


async def _add_history(state: GraphState, runtime: Runtime[RunContext]) -> Update:
    return {"input_request": state["input_request"].strip(), "messages": list(runtime.context.history)}


async def route(state: GraphState) -> Sequence[Send] | str:
    """Send each selected task to an agent, or end. Async, or it would run in a thread."""
    chosen = [task for task in state["tasks"] if task["id"] in state["next_step"]]
    return [Send("agents", _dispatch(state, task)) for task in chosen] or END


def _dispatch(state: GraphState, task: GraphTask) -> TaskDispatch:
    done = approved(state)
    tries = [result for result in state["results"] if result["task_id"] == task["id"]]
    dispatch = TaskDispatch(
        input_request=state["input_request"],
        path=task["id"] if not tries else f"{task['id']}.{len(tries) + 1}",
        messages=state["messages"],
        task=task,
        whole_plan=len(state["tasks"]) == 1 and not state["degraded"],
        needed=[*state.get("given", []), *(done[task_id] for task_id in task["depends_on"] if task_id in done)],
        global_state=state["global_state"],
        calls_before=sum(len(result["tools"]) for result in tries),
    )
    if any(task["id"] in other["depends_on"] and other["status"] == "pending" for other in state["tasks"]):
        dispatch["has_dependents"] = True
    return {**dispatch, "is_simple": True} if state["routing"].get("is_simple") else dispatch


_STARS_KEPT: Final = 64
_NO_LIMIT: Final = 2**31


class StarRunner:
    """Executes stars, each built once. `pipeline` makes what works on tasks, which may execute further stars."""

    def __init__(self, supervisor: SupervisorNode, qa: Qa, pipeline: Callable[["StarRunner"], TaskPipeline]) -> None:
        build = partial(build_star, supervisor=supervisor, pipeline=pipeline(self), qa=qa)
        self._star = lru_cache(_STARS_KEPT)(build)
        self._control = RunControl()

    @property
    def draining(self) -> bool:
        """Whether executions end as soon as they can."""
        return self._control.drain_requested

    def drain(self) -> None:
        """Let every execution end after its current step, from now on."""
        self._control.request_drain()

    async def run(self, spec: StarSpec, context: RunContext, initial: GraphState) -> GraphState:
        """Execute a star from its start, or from its last checkpoint in the run; return the state that it ends in.

        Raises SuspendedError while it waits for answers, GraphDrained once a step ended after `drain`.
        """
        saver = context.checkpoints.saver(context.path)
        thread = f"{context.run.id}/{context.path}" if context.path else context.run.id  # a team's call has its own
        config: RunnableConfig = {
            "configurable": {"thread_id": thread, "checkpoint_ns": ""},
            "recursion_limit": _NO_LIMIT,  # decisions and tasks of a plan are limited, and so is time
            "callbacks": [],
        }
        given = None if await saver.aget_tuple(config) else initial
        star = copy(self._star(spec))  # pyright: ignore[reportArgumentType] - frozen models have a hash
        star.checkpointer = saver
        outer = var_child_runnable_config.set(None)  # a star inside a node of another one is a graph of its own
        try:
            reached = await star.ainvoke(
                given, config, context=context, durability="sync", control=self._control, version="v2"
            )
        finally:
            var_child_runnable_config.reset(outer)
        if waits := reached.interrupts:
            if not all(item.value for item in waits):  # a star inside a task was drained
                raise GraphDrained
            raise SuspendedError(*dict.fromkeys(key for item in waits for key in item.value))
        return reached.value
