"""Validates the request and starts the state."""

from dataclasses import dataclass

from langgraph.runtime import Runtime

from brain.context import RunContext
from brain.state import GraphState, Routing


@dataclass(frozen=True, slots=True)
class Preprocess:
    """Puts the request and the rendered conversation into an otherwise empty state."""

    async def __call__(self, state: GraphState, runtime: Runtime[RunContext]) -> GraphState:
        """Return the state that a run begins with."""
        return GraphState(
            input_request=state["input_request"].strip(),
            messages=list(runtime.context.history),
            plan=[],
            assumptions=[],
            degraded=[],
            routing=Routing(
                decisions=0, plan_version=0, failures_seen=0, retry_count=0, progress="", routed=[], reason=""
            ),
            reply="",
            failure="",
        )
