"""Brings the conversation to a fresh state."""

from dataclasses import dataclass

from langgraph.runtime import Runtime

from brain.run_context import RunContext
from brain.state import GraphState, Update


@dataclass(frozen=True, slots=True)
class Preprocess:
    """Puts the rendered conversation beside the request."""

    async def __call__(self, state: GraphState, runtime: Runtime[RunContext]) -> Update:
        """Return the update that every later node builds on."""
        return {"input_request": state["input_request"].strip(), "messages": list(runtime.context.history)}
