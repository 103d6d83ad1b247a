"""How a decision of the supervisor changes the state, and the circuit breaker that ends planning without progress."""

from collections.abc import Sequence, Set
from typing import Final, cast

from brain.planning.decision import Decision
from brain.planning.plan_changes import removed_parts, removed_tasks
from brain.planning.plan_validation import RejectedTask
from brain.state import DegradedPart, GraphState, GraphTask, Routing, Update, approved, failures, undecided
from starling.core.json import digest


def is_direct_reply(decision: Decision) -> bool:
    """Whether the supervisor answered the request itself."""
    return bool(decision.reply.strip()) and not decision.selected_agents


_OF_DECISION: Final = ("is_simple", "undecided")  # keys of the routing that only the last decision sets


def is_final(decision: Decision, state: GraphState) -> bool:
    """Whether nothing is left to do: a direct reply, or approved results that satisfy the request."""
    return is_direct_reply(decision) or (decision.is_request_satisfied and bool(approved(state)))


def adopt(
    state: GraphState, decision: Decision, tasks: Sequence[GraphTask], rejected: Sequence[RejectedTask]
) -> Update:
    """Return the update that adopts a decision with its accepted `tasks`; rejected ones become degraded parts.

    So do pending ones that it takes out of the plan, where nothing is planned in place of them.
    """
    removed = removed_tasks(decision, state)
    routing = cast("Routing", {name: value for name, value in state["routing"].items() if name not in _OF_DECISION})
    decided = {task["id"] for task in tasks} | {item.task_id for item in rejected}
    known = [part for part in state["degraded"] if part.get("task_id") not in decided]
    added = [DegradedPart(part=item.part, reason=item.reason) for item in decision.unserved]
    added += removed_parts(decision, removed, state)
    added += [DegradedPart(part=it.part, reason=it.reason, task_id=it.task_id, code=it.code) for it in rejected]
    return {
        "tasks": [*tasks, *removed],
        "plan": decision.plan,
        "assumptions": list(dict.fromkeys([*state["assumptions"], *decision.assumptions])),
        "degraded": [*known, *(part for part in added if part not in known)],
        "reply": "" if decision.selected_agents else decision.reply.strip(),
        "routing": routing
        | {
            "decisions": routing["decisions"] + 1,
            "plan_version": routing["plan_version"] + 1,
            "failures_seen": failures(state),
            "reason": decision.thought_process,
            "direct": is_direct_reply(decision),
        }
        | ({"is_simple": True} if decision.is_simple else {})
        | ({"undecided": waiting} if (waiting := undecided(state)) else {}),
    }


REPEATS_ALLOWED: Final = 2


def count_selection(state: GraphState, agents: Set[str]) -> Routing:
    """Return the routing of `state` with one more selection of agents counted.

    `retry_count` grows with each selection of an agent that was selected before, and starts again at 0 after progress.
    """
    routing = state["routing"]
    progress = digest({"plan": state["plan"], "approved": sorted(approved(state))})
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
