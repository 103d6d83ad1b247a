"""Validation of plans, without a model."""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

from brain.planning.decision import Assignment, Decision, OpenDecision
from brain.registry.cards import GENERALIST, Roster
from brain.state import DegradedPart, GraphState, GraphTask, TaskOutcome, undecided
from starling.core.model_output.names import near_matches

UNREACHED = "It was never reached: what it depends on failed, or a limit was reached."
UNDECIDED = "It waited for a decision on who does it, which was not made."
DEPENDENT = "It depends on a task that can't be done."
TOO_MANY = "A plan may have at most"
_ABSENT = "which isn't in the plan"
_EMPTY = (
    "The decision is empty. Give the request to agents in `selected_agents`, or answer it in `reply` if no agent is "
    "needed, or name in `unserved` each part that no agent can serve."
)
_AGENTS_NAMED = 24  # in an error where none is near; of more agents none is named


@dataclass(frozen=True, slots=True)
class PlanningContext:
    """Inputs that a supervisor decision is validated against.

    `request` is what a task without a text is; the whole plan may have `most_tasks`. With `may_look` a decision may
    only name what to look for. `all_agents` has also those that this run may not use; a kill switch stops those in
    `switched_off`. `removed` are the tasks that the decision takes out of the plan.
    """

    roster: Roster
    tasks: Sequence[GraphTask] = ()
    results: Sequence[TaskOutcome] = ()
    request: str = ""
    most_tasks: int = 24
    may_look: bool = False
    all_agents: Roster = field(default_factory=lambda: Roster({}))
    switched_off: Set[str] = frozenset()
    removed: Set[str] = frozenset()

    @property
    def settled(self) -> set[str]:
        """The ids of tasks that no decision changes."""
        return {task["id"] for task in self.tasks if task["status"] in ("approved", "running")}

    @property
    def waiting(self) -> dict[str, list[str]]:
        """The dependencies of each pending task."""
        return {task["id"]: task["depends_on"] for task in self.tasks if task["status"] == "pending"}

    def wanted(self, decision: Decision) -> dict[str, Assignment]:
        """Return the new or renewed tasks of a decision by id, each with the name of the agent that is meant."""
        return {
            item.task_id: item.model_copy(
                update={
                    "agent": self.roster.resolve(item.agent) if item.agent.strip() else "",
                    "task": item.task if item.task.strip() else self.request,
                }
            )
            for item in decision.selected_agents
            if item.task_id not in self.settled
        }

    def too_many(self, wanted: Mapping[str, Assignment]) -> list[str]:
        """Return the new tasks of a decision for which the plan has no room, by id, the last ones first to go."""
        known = {task["id"] for task in self.tasks}
        room = max(0, self.most_tasks - len(known))
        return [task_id for task_id in wanted if task_id not in known][room:]

    def missing(self, item: Assignment, wanted: Mapping[str, Assignment]) -> list[str]:
        """Return the dependencies of a task that are not in the plan, or that are taken out of it."""
        planned = wanted.keys() | (self.waiting.keys() - self.removed) | self.settled
        return [task_id for task_id in item.depends_on if task_id not in planned]


@dataclass(frozen=True, slots=True)
class RejectedTask:
    """A task of a decision that can't be dispatched.

    `code` is `unknown_agent`, `not_granted`, `switched_off`, `server_unavailable`, `agent_unavailable`,
    `outcome_unknown`, `bad_dependency`, `dependency` (of a task that can't be done) or `limit_reached`.
    """

    task_id: str
    part: str
    reason: str
    agent: str
    code: str


class _Obstacle(NamedTuple):
    """Why a task can't be dispatched."""

    code: str
    reason: str


def accepted_tasks(decision: Decision, planning: PlanningContext) -> tuple[list[GraphTask], list[RejectedTask]]:
    """Return the new or renewed tasks that can be dispatched, and those that can't with the reason.

    Approved and running tasks stay as they are, and so do pending ones that aren't named again. A task needs an
    agent that exists and works now, and dependencies that exist and form no cycle. A task that may have been done
    already is not done again.
    """
    planning = _without_removed(decision, planning)
    wanted = planning.wanted(decision)
    too_many = _Obstacle("limit_reached", _too_many_text(planning))
    found = _obstacles(wanted, planning, dict.fromkeys(planning.too_many(wanted), too_many))
    accepted = [_marked(_pending(item), planning) for task_id, item in wanted.items() if task_id not in found]
    rejected = [
        RejectedTask(task_id, item.task, found[task_id].reason, item.agent, found[task_id].code)
        for task_id, item in wanted.items()
        if task_id in found
    ]
    return accepted, rejected


def _marked(task: GraphTask, planning: PlanningContext) -> GraphTask:
    """Return the task, marked where it is first planned after another one has failed."""
    known = next((one for one in planning.tasks if one["id"] == task["id"]), None)
    failed = any(result["status"] == "failed" for result in planning.results)
    is_marked = failed if known is None else known.get("after_failure", False)
    return {**task, "after_failure": True} if is_marked else task


def decision_errors(decision: Decision, planning: PlanningContext) -> list[str]:
    """Return the errors that the model can correct.

    An empty decision where nothing is planned, unknown agents or dependencies, and more tasks than a plan may have.
    """
    if not planning.tasks and is_empty(decision) and not (planning.may_look and decision.look_for):
        return [_EMPTY]
    planning = _without_removed(decision, planning)
    wanted = planning.wanted(decision)
    wrong = _removal_errors(decision, planning)
    for item in wanted.values():
        if planning.roster.get(item.agent) is None and not _is_undecided(item):
            names = sorted(planning.roster.cards)
            are_named = len(names) <= _AGENTS_NAMED and not near_matches(item.agent, names)
            known = f" The agents are: {', '.join(names)}." if are_named else ""
            wrong.append(f"{item.task_id}: {planning.roster.unknown(item.agent)}{known}")
        wrong += [
            f"{item.task_id}: depends_on names {task_id}, {_ABSENT}." for task_id in planning.missing(item, wanted)
        ]
    if planning.too_many(wanted):
        wrong.insert(0, f"{_too_many_text(planning)} Plan fewer tasks.")
    return wrong


def is_empty(decision: Decision) -> bool:
    """Whether a decision is empty: no task, no reply, no question and no unserved part."""
    content = decision.selected_agents or decision.reply.strip() or decision.unserved
    return not content and not (isinstance(decision, OpenDecision) and decision.question.strip())


def degraded_parts(state: GraphState, unreached: str = UNREACHED) -> list[DegradedPart]:
    """Return the degraded parts, with each task added once that failed, or that never ran for the reason `unreached`.

    With an empty `unreached`, tasks that never ran are not degraded parts. What a team did not answer is one here, too.
    """
    failed: dict[str, str] = {}
    refused: dict[str, list[str]] = {}
    for result in state["results"]:
        if result["status"] == "failed":
            refusals = refused.setdefault(result["task_id"], [])
            refusals += result.get("refused", ())
            failed[result["task_id"]] = _with_uncertain(with_refusals(result["reason"], refusals), result)
    known = _known_parts(state, failed)
    parts = {part["part"]: part for part in known}
    named = {part.get("task_id") for part in known}
    waits = undecided(state) if unreached == UNREACHED else []
    for task in state["tasks"]:
        reason = failed.get(task["id"], "" if "removed" in task else unreached)
        reason = UNDECIDED if task["id"] in waits else reason
        if task["status"] != "approved" and task["id"] not in named and reason:
            parts.setdefault(task["task"], {"part": task["task"], "reason": reason, "task_id": task["id"]})
    for part in (part for result in state["results"] for part in result.get("degraded", ())):
        parts.setdefault(part["part"], {"part": part["part"], "reason": part["reason"]})
    for call in (call for result in state["results"] for call in result.get("uncertain", ())):
        if not any(call["call"] in part["reason"] for part in parts.values()):
            part = f"whether {call['call']} was done"
            parts.setdefault(part, {"part": part, "reason": call["reason"]})
    return list(parts.values())


def _known_parts(state: GraphState, failed: Mapping[str, str]) -> list[DegradedPart]:
    """Return the degraded parts without what a model said about a failed task, whose own reason is the true one."""
    texts = {task["task"].casefold() for task in state["tasks"] if task["id"] in failed}
    about_task = texts | {task_id.casefold() for task_id in failed}
    return [part for part in state["degraded"] if "task_id" in part or part["part"].casefold() not in about_task]


def _with_uncertain(reason: str, result: TaskOutcome) -> str:
    """Return why a task failed, and which of its calls may have been done all the same."""
    for call in result.get("uncertain", ()):
        known = "" if call["reason"] in reason else f": {call['reason']}"
        reason = f"{reason} {call['call']} may have been done{known}{'' if known.endswith('.') else '.'}"
    return reason


def with_refusals(reason: str, refused: Iterable[str]) -> str:
    """Return why a task failed, after the reasons of calls that people refused; these may not be why it failed."""
    return " ".join([*dict.fromkeys(text for text in refused if text not in reason), reason])


def _obstacles(
    wanted: Mapping[str, Assignment],
    planning: PlanningContext,
    known: Mapping[str, _Obstacle] = MappingProxyType({}),
) -> dict[str, _Obstacle]:
    """Return why each task that can never be done can't be, of which some are `known`."""
    own = {task_id: found for task_id, item in wanted.items() if (found := _obstacle(item, wanted, planning))}
    obstacles = own | dict(known)
    needs = planning.waiting | {task_id: item.depends_on for task_id, item in wanted.items()}
    left = {key: set(others) for key, others in needs.items() if key not in obstacles}
    while ready := [task_id for task_id, others in left.items() if not others & left.keys()]:
        for task_id in ready:
            del left[task_id]
    cycles = wanted.keys() & left.keys()  # those that are in a cycle, or depend on one
    cycle = _Obstacle("bad_dependency", "It is in, or depends on, a cycle of tasks that depend on each other.")
    obstacles |= dict.fromkeys(cycles, cycle)
    while spread := {
        task_id
        for task_id, item in wanted.items()
        if task_id not in obstacles and obstacles.keys() & set(item.depends_on)
    }:
        obstacles |= dict.fromkeys(spread, _Obstacle("dependency", DEPENDENT))
    return obstacles


def _without_removed(decision: Decision, planning: PlanningContext) -> PlanningContext:
    planned = {item.task_id for item in decision.selected_agents}
    return replace(planning, removed={item.task_id for item in decision.removed} - planned)


def _removal_errors(decision: Decision, planning: PlanningContext) -> list[str]:
    """Return what is wrong with the tasks that are taken out of the plan: only pending ones that none needs can be."""
    planned = {item.task_id for item in decision.selected_agents}
    wrong = [
        f"removed names {name}, which isn't a pending task." for name in planning.removed - planning.waiting.keys()
    ]
    for task_id, needed in planning.waiting.items():
        if task_id not in planning.removed | planned and (gone := sorted(planning.removed & set(needed))):
            wrong.append(f"{task_id} depends on {', '.join(gone)}, which is removed: change it, or remove it too.")
    return sorted(wrong)


def _is_undecided(item: Assignment) -> bool:
    """Whether the results that a task depends on decide first who does it."""
    return not item.agent and bool(item.depends_on)


def _obstacle(item: Assignment, wanted: Mapping[str, Assignment], planning: PlanningContext) -> _Obstacle | None:
    card = planning.roster.get(item.agent)
    if _is_undecided(item):
        card = GENERALIST  # whoever it will be
    if card is None:
        exists = planning.all_agents.get(planning.all_agents.resolve(item.agent))
        return _Obstacle("not_granted" if exists else "unknown_agent", planning.roster.unknown(item.agent))
    if card.degraded:
        code = "server_unavailable" if card.server else "agent_unavailable"
        return _Obstacle("switched_off" if card.name in planning.switched_off else code, card.degraded)
    if uncertain := _uncertain_reason(item, planning):
        return _Obstacle("outcome_unknown", f"It isn't done again. {uncertain}")
    if missing := planning.missing(item, wanted):
        return _Obstacle("bad_dependency", f"It depends on {', '.join(missing)}, {_ABSENT}.")
    return None


def _uncertain_reason(item: Assignment, planning: PlanningContext) -> str:
    """Return the reason of an earlier try by the same agent whose outcome is unknown."""
    texts = {task["id"]: task["task"] for task in planning.tasks}
    for result in planning.results:
        same = result["task_id"] == item.task_id or texts.get(result["task_id"]) == item.task
        if result.get("unknown") and same and result["agent"] == item.agent:
            return result["reason"]
    return ""


def _too_many_text(planning: PlanningContext) -> str:
    return f"{TOO_MANY} {planning.most_tasks} tasks (limits.tasks_per_plan)."


def _pending(item: Assignment) -> GraphTask:
    return GraphTask(
        id=item.task_id,
        agent=item.agent,
        task=item.task,
        depends_on=list(dict.fromkeys(item.depends_on)),
        status="pending",
    )
