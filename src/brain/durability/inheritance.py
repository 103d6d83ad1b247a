"""What a fork begins with: decisions and outcomes in the journal of its original, and the state that they make."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self, cast

from brain.blackboard import board_of
from brain.state import APPENDED, GraphState, GraphTask, Routing, TaskOutcome, Update, after, failures
from starling.core.errors import InvalidRequestError
from starling.core.forks import NotForkableError, decision_number
from starling.infra.postgres.runs.writer import JournalEntry

INHERITED: Final = "inherited"
"""The kind of the entries that a fork has of its original; `position` is their place in its list."""

_DECISION: Final = "supervisor/"
_REPLACED: Final = ("plan", "assumptions", "degraded", "reply")  # keys of an update; those of `APPENDED` are appended


def try_names(results: Iterable[TaskOutcome]) -> list[str]:
    """Return the names of outcomes in their order: `t1`, and `t1.2` for that of the second try."""
    counts, names = Counter[str](), list[str]()
    for result in results:
        task = result["task_id"]
        counts[task] += 1
        names.append(task if counts[task] == 1 else f"{task}.{counts[task]}")
    return names


def decision_record(state: GraphState, update: Update) -> dict[str, Any]:
    """Return what the journal keeps of a decision: which outcomes it saw, and its update where the run goes on."""
    kept: dict[str, Any] = {"seen": seen} if (seen := try_names(state["results"])) else {}
    if not update.get("next_step") and "clarifications" not in update:
        return kept
    changed = {name: update[name] for name in _REPLACED if name in update and update[name] != state[name]}
    changed |= {name: update[name] for name in ("tasks", *APPENDED) if update.get(name)}
    return {**kept, "update": {**changed, "routing": update["routing"]}}


def inherited_entries(entries: Iterable[JournalEntry], at: str) -> list[JournalEntry]:
    """Return the entries of a run's journal that a fork begins with, in the order in which they came.

    Raises NotForkableError where the journal lacks some, InvalidRequestError where the run has no such place, or a
    task there that nothing could begin with.
    """
    kept, number = _Kept.of(entries), decision_number(at)
    return kept.before(number) if number else kept.at_task(at)


def folded(inherited: Iterable[JournalEntry], state: GraphState, at: str) -> GraphState:
    """Return the state that a fork begins with; `state` is that of a run which begins with nothing."""
    kept = _Kept.of(inherited)
    if not kept.decisions:
        return state
    left = dict(kept.outcomes)
    for entry in kept.decisions.values():
        state = _with_outcomes(state, [left.pop(name) for name in entry.data.get("seen", ()) if name in left])
        state = after(state, entry.data["update"])
    begins = "decision" if decision_number(at) else "tasks"
    routing: Routing = {**state["routing"], "failures_seen": failures(state), "begins": begins}
    state = _with_outcomes(state, left.values())
    tasks: list[GraphTask] = [
        {**task, "status": "pending"} if task["status"] == "running" else task for task in state["tasks"]
    ]
    return {**state, "tasks": tasks, "routing": routing}


@dataclass(frozen=True, slots=True)
class _Kept:
    """The entries of a journal: decisions by number, outcomes by the name of their try, both in their order.

    `made` are the numbers of all decisions that the run began.
    """

    decisions: Mapping[int, JournalEntry]
    outcomes: Mapping[str, JournalEntry]
    made: frozenset[int]

    @classmethod
    def of(cls, entries: Iterable[JournalEntry]) -> Self:
        """Read entries of the main star."""
        decisions, outcomes, made = dict[int, JournalEntry](), dict[str, JournalEntry](), set[int]()
        for entry in sorted(entries, key=_age):
            if entry.path.startswith(_DECISION):
                made.add(number := int(entry.path.removeprefix(_DECISION)))
                if entry.data:
                    decisions[number] = entry
            elif "task_id" in entry.data and "/" not in entry.path:  # no member of a team
                outcomes[_try_name(entry)] = entry
        decisions = dict(sorted(decisions.items()))
        seen = next((entry.data.get("seen", ()) for entry in reversed(decisions.values())), ())
        ordered = {name: outcomes[name] for name in seen if name in outcomes}
        return cls(decisions, ordered | outcomes, frozenset(made))

    def before(self, number: int) -> list[JournalEntry]:
        """Return what a decision saw."""
        if number == 1:
            return []
        if self.decisions and number not in self.made:
            made = f"It made {len(self.made)}: `starling run show RUN --tree` shows them."
            raise InvalidRequestError(f"The run made no decision {number}.", made)
        decision = self.decisions.get(number)
        seen = decision.data.get("seen", ()) if decision else self.outcomes  # else it failed
        return self._selected(number - 1, seen)

    def at_task(self, task: str) -> list[JournalEntry]:
        """Return the plan in force when the last try of a task began, and the outcomes of what doesn't depend on it."""
        updates = [number for number, entry in self.decisions.items() if "update" in entry.data]
        if not updates:
            raise _not_kept()
        if task not in self._tasks(updates):
            raise InvalidRequestError(f"The main plan has no task {task!r}.", "`starling run show RUN` shows it.")
        last = [name for name in self.outcomes if _task_of(name) == task][-1:]
        force = max(number for number in updates if not set(last) & set(self._seen(number)))
        later = next((number for number in self.decisions if number > force), None)
        plan = self._tasks(number for number in updates if number <= force).values()
        gone = _with_dependents(task, plan)
        came = self.outcomes if later is None else self._seen(later)
        kept = self._selected(force, [name for name in came if _task_of(name) not in gone])
        approved = {entry.data["task_id"] for entry in kept if entry.data.get("status") == "approved"}
        waiting = [one for one in plan if one["id"] not in approved]
        for needed in (entry.data["task_id"] for entry in kept if "task_id" in entry.data):
            if needed not in approved and task in _with_dependents(needed, waiting):
                why = f"Task {task!r} can't begin: task {needed!r}, which it depends on, failed."
                raise InvalidRequestError(why, f"Fork it at {needed!r}.")
        return kept

    def _seen(self, number: int) -> Sequence[str]:
        return self.decisions[number].data.get("seen", ())

    def _tasks(self, numbers: Iterable[int]) -> Mapping[str, GraphTask]:
        updates = (self.decisions[number].data["update"] for number in numbers)
        tasks = {task["id"]: task for update in updates for task in update.get("tasks", ())}
        return {name: task for name, task in tasks.items() if "removed" not in task}

    def _selected(self, decisions: int, names: Iterable[str]) -> list[JournalEntry]:
        """Return so many decisions, each with its update, and outcomes. Raises NotForkableError."""
        found = [self.decisions.get(number) for number in range(1, decisions + 1)]
        outcomes = [self.outcomes.get(name) for name in names]
        whole = [entry for entry in found if entry and "update" in entry.data] + [one for one in outcomes if one]
        if len(whole) < len(found) + len(outcomes):
            raise _not_kept()
        return whole


def _not_kept() -> NotForkableError:
    return NotForkableError(
        "The run can't be forked there: what it decided is not kept. It had no plan, asked the user in place of an"
        " answer, was pruned, or was executed by an earlier version.",
        "Fork it at `start`.",
    )


def _age(entry: JournalEntry) -> tuple[bool, int, float, str]:
    return entry.kind != INHERITED, entry.position, entry.at.timestamp() if entry.at else 0.0, entry.path


def _try_name(entry: JournalEntry) -> str:
    """Return the name of an outcome's try: its path, but for teams whose task is named as a node is."""
    task = str(entry.data["task_id"])
    number = entry.path.removeprefix(task).removeprefix(".")
    return task if number in ("", "1") else f"{task}.{number}"


def _task_of(name: str) -> str:
    return name.partition(".")[0]


def _with_dependents(task: str, tasks: Iterable[GraphTask]) -> set[str]:
    """Return a task and those that depend on it, on whichever way."""
    gone, before, known = {task}, 0, list(tasks)
    while len(gone) > before:
        before = len(gone)
        gone |= {one["id"] for one in known if gone & set(one["depends_on"])}
    return gone


def _with_outcomes(state: GraphState, entries: Iterable[JournalEntry]) -> GraphState:
    results = [cast("TaskOutcome", entry.data) for entry in entries]
    ended = {result["task_id"]: result["status"] for result in results}
    return {
        **after(
            state, {"tasks": [{**task, "status": ended[task["id"]]} for task in state["tasks"] if task["id"] in ended]}
        ),
        "results": [*state["results"], *results],
        "global_state": state["global_state"] | board_of(results),
    }
