"""What makes a plan sound, decided without a model."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from brain.decision import Assignment, Decision
from brain.registry.cards import Roster
from brain.state import DegradedPart, GraphState, TaskRecord, approved
from starling.core.json import digest


@dataclass(frozen=True, slots=True)
class Rejected:
    """A task that can't be dispatched as it stands."""

    part: str
    reason: str


def accepted_tasks(
    decision: Decision, known: Sequence[TaskRecord], roster: Roster
) -> tuple[list[TaskRecord], list[Rejected]]:
    """Return the new or renewed tasks that can be dispatched, and those that can't with the reason.

    Approved and running tasks stay as they are, and so do pending ones that aren't named again. A task needs an
    agent that exists and works now, and dependencies that exist and don't run in a circle.
    """
    settled = {task["id"] for task in known if task["status"] in ("approved", "running")}
    wanted = {item.task_id: item for item in decision.selected_agents if item.task_id not in settled}
    waiting = {task["id"]: task["depends_on"] for task in known if task["status"] == "pending"}
    needs = waiting | {task_id: item.depends_on for task_id, item in wanted.items()}
    reasons = {task_id: _why_not(item, needs.keys() | settled, roster) for task_id, item in wanted.items()}
    bad = {task_id for task_id, reason in reasons.items() if reason}
    circles = wanted.keys() & _in_circles({key: set(others) for key, others in needs.items() if key not in bad})
    reasons |= dict.fromkeys(circles, "It is in, or waits for, a circle of tasks that wait for each other.")
    bad |= circles
    spread = True
    while spread:
        spread = {key for key, item in wanted.items() if key not in bad and bad & set(item.depends_on)}
        bad |= spread
    accepted = [_pending(item) for task_id, item in wanted.items() if task_id not in bad]
    rejected = [
        Rejected(wanted[task_id].task, reasons[task_id] or "It depends on a task that can't be done.")
        for task_id in wanted
        if task_id in bad
    ]
    return accepted, rejected


def progress_of(state: GraphState) -> str:
    """Return a mark that changes when plan, approved results or blackboard do."""
    board = state["global_state"]
    return digest({"plan": state["plan"], "approved": sorted(approved(state)), "global_state": board})


def without_dead_ends(state: GraphState) -> list[DegradedPart]:
    """Return the degraded parts, with every task that failed or never ran added once."""
    parts = {part["part"]: part for part in state["degraded"]}
    failed = {result["task_id"]: result["reason"] for result in state["results"] if result["status"] == "failed"}
    for task in state["tasks"]:
        if task["status"] != "approved":
            reason = failed.get(task["id"], "It was never reached: what it depends on failed, or time ran out.")
            parts.setdefault(task["task"], {"part": task["task"], "reason": reason})
    return list(parts.values())


def _why_not(item: Assignment, planned: Set[str], roster: Roster) -> str:
    card = roster.get(item.agent)
    if card is None:
        return f"There is no agent {item.agent!r}."
    if card.degraded:
        return card.degraded
    missing = [task_id for task_id in item.depends_on if task_id not in planned]
    return f"It depends on {', '.join(missing)}, which isn't in the plan." if missing else ""


def _in_circles(needs: Mapping[str, Set[str]]) -> set[str]:
    """Return the tasks that are in a circle or wait for one: what is left when ready ones are taken away in turn."""
    left = dict(needs)
    while ready := [task_id for task_id, others in left.items() if not others & left.keys()]:
        for task_id in ready:
            del left[task_id]
    return set(left)


def _pending(item: Assignment) -> TaskRecord:
    return TaskRecord(
        id=item.task_id,
        agent=item.agent,
        task=item.task,
        depends_on=list(dict.fromkeys(item.depends_on)),
        status="pending",
    )
