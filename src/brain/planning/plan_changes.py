"""What a decision changes in a plan that was there before, and why."""

from collections.abc import Iterator, Sequence

from brain.planning.decision import Decision
from brain.registry.cards import Roster
from brain.state import DegradedPart, GraphState, GraphTask, approved
from starling.core.run_document.document import ChangeKind, PlanChange
from starling.core.text import one_line

_REASON_CHARS = 300
_CAUSE_CHARS = 160
_REMOVED = "It was taken out of the plan"


def removed_tasks(decision: Decision, state: GraphState) -> list[GraphTask]:
    """Return the pending tasks that a decision takes out of the plan; one that it plans anew stays."""
    planned = {item.task_id for item in decision.selected_agents}
    why = {item.task_id: item.reason for item in decision.removed if item.task_id not in planned}
    return [
        {**task, "status": "failed", "removed": one_line(why[task["id"]] or decision.thought_process, _REASON_CHARS)}
        for task in state["tasks"]
        if task["status"] == "pending" and task["id"] in why
    ]


def removed_parts(decision: Decision, removed: Sequence[GraphTask], state: GraphState) -> list[DegradedPart]:
    """Return the removed tasks that the answer has to name: none where others are planned, or results are enough.

    A task that is planned as before, such as a repeated one, stands in place of no other.
    """
    known = {task["id"]: task["task"] for task in state["tasks"]}
    is_replaced = any(known.get(item.task_id) != item.task for item in decision.selected_agents)
    if is_replaced or (decision.is_request_satisfied and approved(state)):
        return []
    return [
        DegradedPart(
            part=task["task"],
            reason=": ".join(filter(None, (_REMOVED, task.get("removed")))),
            task_id=task["id"],
            code="removed",
        )
        for task in removed
    ]


def plan_changes(
    before: GraphState, decision: Decision, changed: Sequence[GraphTask], roster: Roster
) -> list[PlanChange]:
    """Return what the tasks that a decision changed differ in from the plan before; nothing where there was none."""
    known = {task["id"]: task for task in before["tasks"]}
    found: list[PlanChange] = []
    for task in changed if known else ():
        old = known.get(task["id"])
        why = task.get("removed") or " ".join(filter(None, (_cause(before, old, roster), decision.thought_process)))
        why = one_line(why or "The supervisor gave no reason.", _REASON_CHARS)
        found += [PlanChange(kind, task["id"], why) for kind in _kinds(old, task)]
    return found


def _kinds(old: GraphTask | None, new: GraphTask) -> Iterator[ChangeKind]:
    if "removed" in new:
        yield "removed"
    elif old is None or "removed" in old:
        yield "added"
    else:
        if old["agent"] != new["agent"]:
            yield "reassigned" if old["agent"] else "assigned"
        if old["task"] != new["task"]:
            yield "reworded"
        if set(old["depends_on"]) != set(new["depends_on"]):
            yield "reordered"
        if old["status"] == "failed":
            yield "repeated"


def _cause(before: GraphState, old: GraphTask | None, roster: Roster) -> str:
    """Return what made a change, as far as the state tells: a failure, or an agent that can't work now."""
    last = {result["task_id"]: result for result in before["results"]}
    if old and (result := last.get(old["id"])) and result["status"] == "failed":
        return f"{old['id']} failed: {one_line(result['reason'], _CAUSE_CHARS)}"
    card = roster.get(old["agent"]) if old else None
    if card and card.degraded:
        return f"{card.name} can't work now: {one_line(card.degraded, _CAUSE_CHARS)}"
    failed = [task_id for task_id, result in last.items() if result["status"] == "failed"]
    return f"{' and '.join(failed)} failed." if failed and old is None else ""
