"""What makes a plan sound, decided without a model."""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from brain.planning.decision import Assignment, Decision
from brain.registry.cards import Roster
from brain.state import DegradedPart, GraphState, TaskOutcome, TaskRecord, merge_tasks

UNREACHED = "It was never reached: what it depends on failed, or a limit was reached."
_ABSENT = "which isn't in the plan"


@dataclass(frozen=True, slots=True)
class PlanningContext:
    """What a decision stands on: who there is, what is planned and came of it, and the rounds that can still run.

    In a round at most `at_once` tasks run side by side.
    """

    roster: Roster
    tasks: Sequence[TaskRecord] = ()
    results: Sequence[TaskOutcome] = ()
    rounds: int = 100
    at_once: int = 8

    @property
    def settled(self) -> set[str]:
        """The tasks that stay as they are, whatever is decided."""
        return {task["id"] for task in self.tasks if task["status"] in ("approved", "running")}

    @property
    def waiting(self) -> dict[str, list[str]]:
        """What each pending task waits for."""
        return {task["id"]: task["depends_on"] for task in self.tasks if task["status"] == "pending"}

    def wanted(self, decision: Decision) -> dict[str, Assignment]:
        """Return the new or renewed tasks of a decision by id."""
        return {item.task_id: item for item in decision.selected_agents if item.task_id not in self.settled}

    def missing(self, item: Assignment, wanted: Mapping[str, Assignment]) -> list[str]:
        """Return what a task waits for that isn't in the plan."""
        planned = wanted.keys() | self.waiting.keys() | self.settled
        return [task_id for task_id in item.depends_on if task_id not in planned]


@dataclass(frozen=True, slots=True)
class RejectedTask:
    """A task that can't be dispatched as it stands."""

    task_id: str
    part: str
    reason: str


def accepted_tasks(decision: Decision, ground: PlanningContext) -> tuple[list[TaskRecord], list[RejectedTask]]:
    """Return the new or renewed tasks that can be dispatched, and those that can't with the reason.

    Approved and running tasks stay as they are, and so do pending ones that aren't named again. A task needs an
    agent that exists and works now, dependencies that exist and don't run in a circle, and a round to run in. What
    may have been done already is not done again.
    """
    wanted = ground.wanted(decision)
    reasons = _reasons(wanted, ground)
    sound = [_pending(item) for task_id, item in wanted.items() if task_id not in reasons]
    reasons |= dict.fromkeys(_too_late(sound, ground), f"{_room(ground)} (limits.graph_steps).")
    accepted = [task for task in sound if task["id"] not in reasons]
    rejected = [RejectedTask(key, item.task, reasons[key]) for key, item in wanted.items() if key in reasons]
    return accepted, rejected


def decision_errors(decision: Decision, ground: PlanningContext) -> list[str]:
    """Return what the model can put right: agents and dependencies that don't exist, and more steps than can run."""
    wanted = ground.wanted(decision)
    wrong: list[str] = []
    for item in wanted.values():
        if ground.roster.get(item.agent) is None:
            wrong.append(f"{item.task_id}: {_nobody(item)} The agents are: {', '.join(sorted(ground.roster.cards))}.")
        wrong += [f"{item.task_id}: depends_on names {task_id}, {_ABSENT}." for task_id in ground.missing(item, wanted)]
    reasons = _reasons(wanted, ground)
    late = _too_late([_pending(item) for task_id, item in wanted.items() if task_id not in reasons], ground)
    return [*wrong, *(f"{task_id}: {_room(ground)}. Plan fewer tasks after one another." for task_id in late)]


def degraded_parts(state: GraphState, unreached: str = UNREACHED) -> list[DegradedPart]:
    """Return the degraded parts, with every task that failed, or never ran for the reason `unreached`, added once.

    Where `unreached` is empty, tasks that never ran aren't missed.
    """
    parts = {part["part"]: part for part in state["degraded"]}
    named = {part.get("task_id") for part in state["degraded"]}
    failed: dict[str, str] = {}
    refused: dict[str, list[str]] = {}
    for result in state["results"]:
        if result["status"] == "failed":
            said = refused.setdefault(result["task_id"], [])
            said += result.get("refused", ())
            failed[result["task_id"]] = with_refusals(result["reason"], said)
    for task in state["tasks"]:
        reason = failed.get(task["id"], unreached)
        if task["status"] != "approved" and task["id"] not in named and reason:
            parts.setdefault(task["task"], {"part": task["task"], "reason": reason, "task_id": task["id"]})
    return list(parts.values())


def with_refusals(reason: str, refused: Iterable[str]) -> str:
    """Return why a task failed, after what people refused on the way: its agent may have ended at something else."""
    return " ".join([*dict.fromkeys(text for text in refused if text not in reason), reason])


def _reasons(wanted: Mapping[str, Assignment], ground: PlanningContext) -> dict[str, str]:
    """Return why which task can't be done, whenever its turn would come."""
    reasons = {task_id: reason for task_id, item in wanted.items() if (reason := _why_not(item, wanted, ground))}
    needs = ground.waiting | {task_id: item.depends_on for task_id, item in wanted.items()}
    circles = wanted.keys() & _in_circles({key: set(others) for key, others in needs.items() if key not in reasons})
    reasons |= dict.fromkeys(circles, "It is in, or waits for, a circle of tasks that wait for each other.")
    while spread := {
        task_id for task_id, item in wanted.items() if task_id not in reasons and reasons.keys() & set(item.depends_on)
    }:
        reasons |= dict.fromkeys(spread, "It depends on a task that can't be done.")
    return reasons


def _why_not(item: Assignment, wanted: Mapping[str, Assignment], ground: PlanningContext) -> str:
    card = ground.roster.get(item.agent)
    if card is None:
        return _nobody(item)
    if card.degraded:
        return card.degraded
    if unsure := _may_be_done(item, ground):
        return f"It isn't done again. {unsure}"
    missing = ground.missing(item, wanted)
    return f"It depends on {', '.join(missing)}, {_ABSENT}." if missing else ""


def _may_be_done(item: Assignment, ground: PlanningContext) -> str:
    """Return what is known of an earlier try by the same agent that may have succeeded unseen."""
    texts = {task["id"]: task["task"] for task in ground.tasks}
    for result in ground.results:
        same = result["task_id"] == item.task_id or texts.get(result["task_id"]) == item.task
        if result.get("unknown") and same and result["agent"] == item.agent:
            return result["reason"]
    return ""


def _too_late(sound: Sequence[TaskRecord], ground: PlanningContext) -> list[str]:
    """Return those of the sound tasks whose turn would come after the last round, if all goes well before it."""
    left = [task for task in merge_tasks(ground.tasks, sound) if task["status"] == "pending"]
    done, in_time, number = ground.settled, set[str](), 0
    while turn := [task["id"] for task in left if done >= set(task["depends_on"])][: ground.at_once]:
        number += 1
        done |= set(turn)
        in_time |= set(turn) if number <= ground.rounds else set()
        left = [task for task in left if task["id"] not in done]
    return [task["id"] for task in sound if task["id"] in done - in_time]


def _nobody(item: Assignment) -> str:
    return f"There is no agent {item.agent!r}."


def _room(ground: PlanningContext) -> str:
    return f"Its turn would come too late: only {ground.rounds} more rounds of tasks can run in this run"


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
