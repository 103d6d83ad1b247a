"""The execution of stars: of the main one of a run, and of those of teams inside its tasks."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, cast

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config
from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl

from brain.execution.graph import Star, StarNodes, build_star
from brain.nodes.agents import TaskPipeline
from brain.nodes.qa import Qa
from brain.nodes.supervisor import SupervisorNode
from brain.run.context import RunContext
from brain.state import GraphState
from starling.core.errors import SuspendedError
from starling.core.teams.stars import StarSpec

_STARS_KEPT: Final = 64


class StarRunner:
    """Executes stars, each built once. `pipeline` makes what works on tasks, which may execute further stars."""

    def __init__(self, supervisor: SupervisorNode, qa: Qa, pipeline: Callable[["StarRunner"], TaskPipeline]) -> None:
        self._nodes = StarNodes(supervisor, pipeline(self), qa)
        self._steps = supervisor.graph_steps
        self._control = RunControl()
        self._stars: OrderedDict[str, Star] = OrderedDict()

    def drain(self) -> None:
        """Let every execution end after its current step, from now on."""
        self._control.request_drain()

    async def run(self, spec: StarSpec, context: RunContext, initial: GraphState) -> GraphState:
        """Execute a star from its start, or from its last checkpoint in the run; return the state that it ends in.

        Raises SuspendedError while it waits for answers, GraphDrained once a step ended after `drain`,
        GraphRecursionError.
        """
        saver = context.checkpoints.saver(context.path)
        thread = f"{context.run.id}/{context.path}" if context.path else context.run.id  # a team's call has its own
        config: RunnableConfig = {
            "configurable": {"thread_id": thread, "checkpoint_ns": ""},
            "recursion_limit": self._steps + 1,  # LangGraph counts its last, empty step too
            "callbacks": [],
        }
        given = None if await saver.aget_tuple(config) else initial
        star: Star = self._built(spec).copy({"checkpointer": saver})
        outer = var_child_runnable_config.set(None)  # a star inside a node of another one is a graph of its own
        try:
            reached = await star.ainvoke(given, config, context=context, durability="sync", control=self._control)
        finally:
            var_child_runnable_config.reset(outer)
        if waits := reached.get("__interrupt__"):
            if not all(item.value for item in waits):  # a star inside a task was drained
                raise GraphDrained
            raise SuspendedError(*dict.fromkeys(key for item in waits for key in item.value))
        return cast("GraphState", reached)

    def _built(self, spec: StarSpec) -> Star:
        star = self._stars.get(spec.hash)
        if star is None:
            star = self._stars[spec.hash] = build_star(spec, self._nodes)
            if len(self._stars) > _STARS_KEPT:
                self._stars.popitem(last=False)
        self._stars.move_to_end(spec.hash)
        return star
