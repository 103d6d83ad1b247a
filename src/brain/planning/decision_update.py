"""How a decision of the supervisor changes the state."""

from collections.abc import Sequence

from brain.planning.decision import Decision
from brain.planning.plan_validation import RejectedTask
from brain.state import DegradedPart, GraphState, TaskRecord, Update, approved, failures


def is_direct_reply(decision: Decision) -> bool:
    """Whether the supervisor answered the request itself."""
    return bool(decision.reply.strip()) and not decision.selected_agents


def is_final(decision: Decision, state: GraphState) -> bool:
    """Whether nothing is left to do: a direct reply, or approved results that satisfy the request."""
    return is_direct_reply(decision) or (decision.is_request_satisfied and bool(approved(state)))


def adopt(
    state: GraphState, decision: Decision, tasks: Sequence[TaskRecord], rejected: Sequence[RejectedTask]
) -> Update:
    """Return the update that adopts a decision with its accepted `tasks`; rejected ones become degraded parts."""
    routing = state["routing"]
    return {
        "tasks": list(tasks),
        "plan": decision.plan,
        "assumptions": list(dict.fromkeys([*state["assumptions"], *decision.assumptions])),
        "degraded": _degraded(state["degraded"], decision, tasks, rejected),
        "reply": "" if decision.selected_agents else decision.reply.strip(),
        "routing": routing
        | {
            "decisions": routing["decisions"] + 1,
            "plan_version": routing["plan_version"] + 1,
            "failures_seen": failures(state),
            "reason": decision.thought_process,
            "direct": is_direct_reply(decision),
        },
    }


def _degraded(
    known: Sequence[DegradedPart], decision: Decision, tasks: Sequence[TaskRecord], rejected: Sequence[RejectedTask]
) -> list[DegradedPart]:
    """Return the known parts without those of tasks in this decision, then the parts that it leaves unserved."""
    decided = {task["id"] for task in tasks} | {item.task_id for item in rejected}
    parts = [part for part in known if part.get("task_id") not in decided]
    added = [DegradedPart(part=item.part, reason=item.reason) for item in decision.unserved]
    added += [DegradedPart(part=item.part, reason=item.reason, task_id=item.task_id) for item in rejected]
    return [*parts, *(part for part in added if part not in parts)]
