"""What happened in a run: plans, tasks with their attempts, calls and verdicts, in the order of its events."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from brain.explanation.english import English
from brain.explanation.rows import RunRows, SkillRow
from starling.core.json import JsonObject
from starling.core.run_status import RunStatus
from starling.core.task_paths import is_within, without_numbers

_TRIAL: Final = re.compile(r"\.[a-z]")


@dataclass(slots=True)
class Call:
    """A tool call. `seq` is the number of the event with which it left, `end` that of its result, 0 without one."""

    id: str
    name: str
    path: str
    attempt: int
    arguments: JsonObject
    seq: int
    at: datetime
    status: str = ""
    state: str = ""
    code: str = ""
    text: str = ""
    effect: str = "read"
    simulated: bool = False
    malformed: bool = False
    end: int = 0
    ended_at: datetime | None = None
    milliseconds: float = 0.0

    @property
    def failed(self) -> bool:
        return self.status == "failed"

    @property
    def place(self) -> tuple[int, int]:
        """The position of the answer that asked for it, and its index there."""
        _, position, index = self.id.rsplit(".", 2)
        return int(position), int(index)


@dataclass(frozen=True, slots=True)
class VerdictRecord:
    """A verdict. `refined` is the output that replaced the attempt's, where it was fixed."""

    seq: int
    attempt: int
    status: str
    reasons: Sequence[str]
    refined: str = ""


@dataclass(slots=True)
class Attempt:
    """One attempt at a task. `text` is what the agent wrote last, where it is kept."""

    number: int
    seq: int
    at: datetime
    calls: list[Call] = field(default_factory=list[Call])
    verdict: VerdictRecord | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class TaskEnd:
    """How a try of a task ended. `skills` are the ids of those that were in its prompt, `artifacts` of its calls."""

    seq: int
    at: datetime
    status: str
    summary: str
    code: str = ""
    skills: Sequence[str] = ()
    artifacts: Sequence[str] = ()


@dataclass(slots=True)
class Try:
    """One try of a task, with its attempts: `t1`, or `t1.2` after a new plan."""

    path: str
    agent: str
    attempts: list[Attempt] = field(default_factory=list[Attempt])
    end: TaskEnd | None = None

    @property
    def calls(self) -> list[Call]:
        return [call for attempt in self.attempts for call in attempt.calls]

    @property
    def seq(self) -> int:
        return self.attempts[0].seq if self.attempts else self.end.seq if self.end else 0


@dataclass(slots=True)
class Task:
    """A task by its `place`: the path without the numbers of tries; `star` is the place of its team, or empty."""

    place: str
    id: str
    star: str
    agent: str = ""
    text: str = ""
    depends_on: Sequence[str] = ()
    planned: int = 0
    tries: list[Try] = field(default_factory=list[Try])

    @property
    def last(self) -> Try | None:
        return self.tries[-1] if self.tries else None

    @property
    def status(self) -> str:
        """`approved`, `failed`, `running`, or `pending` where it never began."""
        if (last := self.last) is None:
            return "pending"
        return last.end.status if last.end else "running"

    @property
    def began(self) -> int:
        """The number of the event with which its first try began; 0 where it never did."""
        return self.tries[0].seq if self.tries else 0

    @property
    def calls(self) -> list[Call]:
        return [call for one in self.tries for call in one.calls]

    @property
    def result(self) -> str:
        """The beginning of its approved result."""
        last = self.last
        return last.end.summary if last and last.end and last.end.status == "approved" else ""


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """A version of the plan of a star."""

    seq: int
    at: datetime
    star: str
    version: int
    why: str
    tasks: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Notice:
    """A warning or an error."""

    seq: int
    at: datetime
    code: str
    message: str
    task_id: str = ""
    star: str = ""
    error: bool = False


@dataclass(slots=True)
class History:
    """A run as a program or a person follows it."""

    rows: RunRows
    plans: list[PlanRecord] = field(default_factory=list[PlanRecord])
    tasks: dict[str, Task] = field(default_factory=dict[str, Task])
    calls: dict[str, Call] = field(default_factory=dict[str, Call])
    notices: list[Notice] = field(default_factory=list[Notice])
    asked: dict[str, int] = field(default_factory=dict[str, int])
    skills: dict[str, SkillRow] = field(default_factory=dict[str, SkillRow])
    last_star: dict[str, str] = field(default_factory=dict[str, str])
    english: English = field(default_factory=English)

    @property
    def ended(self) -> bool:
        return RunStatus(self.rows.run.status).terminal

    @property
    def main_tasks(self) -> list[Task]:
        return [task for task in self.tasks.values() if not task.star]

    def inside(self, place: str) -> list[Task]:
        """Return the tasks of the team that works on a task, in the order of their beginning."""
        found = [task for task in self.tasks.values() if task.place != place and is_within(task.place, place)]
        return sorted(found, key=lambda task: (task.began == 0, task.began))

    def siblings(self, task: Task) -> list[Task]:
        """Return the other tasks of the same star."""
        return [other for other in self.tasks.values() if other.star == task.star and other is not task]

    def needed(self, task: Task) -> set[str]:
        """Return the ids of the tasks that a task depends on, also over others."""
        by_id = {other.id: other for other in (*self.siblings(task), task)}
        found, left = set[str](), list(task.depends_on)
        while left:
            one = left.pop()
            if one not in found:
                found.add(one)
                left += by_id[one].depends_on if one in by_id else ()
        return found

    def known_texts(self, task: Task) -> list[str]:
        """Return the texts that the agent of a task could take values from."""
        needed = self.needed(task)
        results = [other.result for other in self.siblings(task) if other.id in needed]
        answers = [call.text for other in self.siblings(task) if other.id in needed for call in other.calls]
        outer = self.tasks.get(task.star)
        return [task.text, self.rows.run.input, *results, *answers, *(self.known_texts(outer) if outer else ())]

    def failed_tasks(self) -> list[Task]:
        """Return the tasks that failed in the end, in the order in which they failed."""
        found = [task for task in self.tasks.values() if task.status == "failed" and self.counts(task)]
        return sorted(found, key=_failed_at)

    def counts(self, task: Task) -> bool:
        """Whether a task is no part of a trial, nor of a team's attempt that another one followed."""
        if is_trial(task.place):
            return False
        last = task.last
        star = last.path.rpartition("/")[0] if last else ""
        return not star or self.last_star.get(without_numbers(star), star) == star

    def notices_of(self, *codes: str) -> Iterator[Notice]:
        """Yield the warnings and errors with one of these codes."""
        return (notice for notice in self.notices if notice.code in codes)


def is_trial(place: str) -> bool:
    """Whether a place is inside of a trial of a team: `t4.case1/t1`."""
    return _TRIAL.search(place.rpartition("/")[0]) is not None


def _failed_at(task: Task) -> int:
    return task.last.end.seq if task.last and task.last.end else 0


def first(items: Iterable[Call]) -> Call | None:
    """Return the first of some calls, None without any."""
    return next(iter(items), None)
