"""What one run adds to the memory of skills: collected, and written with the results of its tasks."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from brain.skills.repository import NewSkill, SkillUse, storing
from starling.infra.postgres.runs.writer import Clause, ClauseSource


class SkillSink(Protocol):
    """Writes clauses with the next flush of one run."""

    def add(self, source: ClauseSource) -> None: ...


@dataclass(frozen=True, slots=True)
class Lesson:
    """What a finished task adds: uses of skills, and a new skill if it teaches one."""

    uses: Sequence[SkillUse] = ()
    learned: NewSkill | None = None


@dataclass(slots=True)
class RunSkills:
    """Collects lessons until the next flush: tasks that end together are in one statement."""

    sink: SkillSink
    _lessons: list[Lesson] = field(default_factory=list[Lesson])

    def add(self, lesson: Lesson) -> None:
        """Write a lesson with what was recorded right before."""
        if not lesson.uses and lesson.learned is None:
            return
        if not self._lessons:
            self.sink.add(self._clause)
        self._lessons.append(lesson)

    def _clause(self) -> Clause:
        lessons, self._lessons = self._lessons, []
        learned = [lesson.learned for lesson in lessons if lesson.learned]
        return storing(learned, [use for lesson in lessons for use in lesson.uses])
