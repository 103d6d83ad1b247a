"""Facts of a run that its explanation rests on, and the parts of sentences that name them."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from brain.explanation.shape import Ref, ShownStatus
from starling.core.json import canonical
from starling.core.run_document.builder import TEXT_CHARS
from starling.core.run_document.document import Call, LeftOutTask, Notice, RunDocument, TaskRecord
from starling.core.task_paths import is_within, without_numbers
from starling.core.text import one_line

_TRIAL: Final = re.compile(r"\.[a-z]")
_INNER_MARKS: Final = str.maketrans("“”", "‘’")


class RunFacts:
    """The document of a run, by task.

    `tries` has the tries of each task by its place. `tasks` has the last one of each, without tasks of trials and of
    attempts of a team that another attempt followed. `degraded` are the missing parts of the answer, with the reasons.
    """

    def __init__(self, document: RunDocument) -> None:
        self.document = document
        self.ended = document.status.terminal
        self.tries: defaultdict[str, list[TaskRecord]] = defaultdict(list)
        stars: dict[str, str] = {}
        for task in document.tasks:
            self.tries[task.place].append(task)
            stars[without_numbers(task.star)] = task.star
        self.tasks = {
            place: tries[-1]
            for place, tries in self.tries.items()
            if not _TRIAL.search(tries[-1].star) and stars[without_numbers(tries[-1].star)] == tries[-1].star
        }
        self.main_tasks = [task for task in self.tasks.values() if not task.star]
        result: Mapping[str, Any] = document.result or {}
        self.reply = str(result.get("reply") or "")
        parts = result.get("degraded") or ()
        self.degraded: Mapping[str, str] = {part["part"][:TEXT_CHARS]: part["reason"] for part in parts}

    def failed(self) -> list[TaskRecord]:
        """Return the tasks that failed in the end, in the order in which they failed."""
        return sorted((task for task in self.tasks.values() if task.status == "failed"), key=lambda task: task.seq)

    def members(self, task: TaskRecord) -> list[TaskRecord]:
        """Return the tasks of the team that made the last attempt at a task, in the order in which they ended."""
        return sorted((one for one in self.tasks.values() if _is_star_of(one.star, task)), key=lambda one: one.seq)

    def left_out(self, task: TaskRecord) -> list[LeftOutTask]:
        """Return what the last attempt at a task could not plan of its team's tasks."""
        return [item for item in self.document.left_out if _is_star_of(item.star, task)]

    def blocked_by(self, task: TaskRecord) -> TaskRecord | None:
        """Return the failed task that a task depends on, also over others; None where there is none."""
        star = {other.id: other for other in self.tasks.values() if other.star == task.star}
        names = list(task.depends_on)
        for name in names:  # also over what these depend on
            needed = star.get(name)
            if needed and needed.status == "failed":
                return needed
            names += [one for one in (needed.depends_on if needed else ()) if one not in names]
        return None

    def status(self, task: TaskRecord) -> ShownStatus:
        """Return the status of a task: `waiting` where it runs and a question of it is open."""
        open_at = [item.path for item in self.document.interrupts if item.state == "open" and not self.ended]
        waits = task.status == "running" and any(is_within(without_numbers(path), task.place) for path in open_at)
        return "waiting" if waits else task.status

    def notices(self, *codes: str) -> Iterator[Notice]:
        """Yield the warnings and errors of the main star with one of these codes, which are about no single task."""
        return (one for one in self.document.notices if one.code in codes and not one.task and not one.star)


def _is_star_of(star: str, task: TaskRecord) -> bool:
    """Whether a path is that of an attempt of the team that works on a task: `t3`, `t3:2`."""
    return star == task.path or (star.startswith(f"{task.path}:") and star.removeprefix(f"{task.path}:").isdigit())


def uncorrected(calls: Sequence[Call]) -> list[Call]:
    """Return the failed calls after which no call of the same tool in a later answer of the model succeeded."""
    places = {call.id: int(call.id.rsplit(".", 2)[1]) for call in calls}
    last = {call.name: places[call.id] for call in calls if call.status == "succeeded"}
    return [call for call in calls if call.failed and last.get(call.name, -1) <= places[call.id]]


def said(text: str, limit: int = 240) -> str:
    """Return a text as a quotation without a full stop at its end: a sentence goes on after it.

    A quotation in it has single marks.
    """
    return f"“{one_line(text.rstrip('. \n'), limit).translate(_INNER_MARKS)}”"


def counted(number: int, what: str) -> str:
    """Return a number of things: `1 task`, `2 tasks`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def moment(at: datetime) -> str:
    """Return a moment in UTC."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def duration(seconds: float) -> str:
    """Return a duration: `40 ms`, `1.2 s`, `3 min 20 s`, `2 h 5 min`."""
    if seconds < 60:
        return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def call_text(call: Call) -> str:
    """Return a call in words: its tool with the arguments."""
    return f"{call.name} with {one_line(canonical(call.args), 160)}"


def task_text(task: TaskRecord) -> str:
    """Return the path of a task in a sentence, with its text."""
    return f"task {task.place} ({said(task.text, 100)})" if task.text else f"task {task.place}"


def event(seq: int) -> Ref:
    """Return the reference to an event."""
    return Ref("event", str(seq))
