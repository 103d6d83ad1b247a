"""The circuit breaker: ends planning that selects the same agents again without progress."""

from collections.abc import Set
from typing import Final

from brain.state import GraphState, Routing, approved
from starling.core.json import digest

REPEATS_ALLOWED: Final = 2


def count_selection(state: GraphState, agents: Set[str]) -> Routing:
    """Return the routing of `state` with one more selection of agents counted.

    `retry_count` grows with each selection of an agent that was selected before, and starts again at 0 after progress.
    """
    routing, progress = state["routing"], _progress(state)
    if progress != routing["progress"]:
        return {**routing, "progress": progress, "routed": sorted(agents), "retry_count": 0}
    repeated = bool(agents & set(routing["routed"]))
    return {
        **routing,
        "routed": sorted(agents | set(routing["routed"])),
        "retry_count": routing["retry_count"] + repeated,
    }


def is_open(routing: Routing) -> bool:
    """Whether no agent may be selected any more."""
    return routing["retry_count"] >= REPEATS_ALLOWED


def _progress(state: GraphState) -> str:
    """Return a digest that changes when the plan, the approved results or the blackboard do."""
    board = state["global_state"]
    return digest({"plan": state["plan"], "approved": sorted(approved(state)), "global_state": board})
