"""The memory of skills: what similar tasks recall, and what a finished task adds to it."""

import asyncio
import logging
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from brain.registry.cards import AgentCard
from brain.retrieval.text_similarity import content_words
from brain.run_sink import RunSink
from brain.skills.generalization import MadeCall, Redact, TaskTexts, for_task, generalized, hiding_secrets, is_too_long
from brain.skills.recall_ranking import RankedSkill, ranked
from brain.skills.repository import COMPARED_EACH, NewSkill, SkillQuery, SkillRepository, SkillUse, storing
from brain.skills.skill import MOST_CALLS, OUTCOME_CHARS, TASK_CHARS, LearnedSkill, PromptSkill, SkillExample
from starling.core.clock import Clock
from starling.core.embeddings import Embedder
from starling.core.errors import DatabaseUnavailableError, StarlingError
from starling.core.ids import new_id
from starling.core.json import canonical
from starling.core.text_screening import suspicion
from starling.core.tool_calls import Effect
from starling.core.tools import ToolDefinition
from starling.core.tracing import SpanKind, Tracer
from starling.infra.postgres.runs.writer import Clause

_RECOUNT_SECONDS: Final = 60.0
_KEPT: Final = 1_000  # tasks with their vectors, in memory
_KEPT_RECALLED: Final = 100  # sets of skills that tasks recalled, in memory
_WORD_CHARS: Final = 100  # longer ones are data; Postgres refuses those of over 2,046 bytes
_RETRY_SECONDS: Final = 60.0  # after the embedder failed
_BLAMED: Final = frozenset({"rejected", "tool_error", "invalid_arguments", "invalid_result", "not_allowed"})
_log = logging.getLogger(__name__)

type _Rows = Sequence[tuple[str, PromptSkill]]


@dataclass(frozen=True, slots=True)
class FinishedTask:
    """A task that ended: what it had recalled, and the succeeded calls that its result was made of, in order.

    `output` is empty and `code` says why where it failed; `results` are those of the tasks that it depended on,
    `seen` the texts of all calls, also of failed ones and of rejected attempts. Without a verdict it teaches nothing.
    """

    tenant: str
    path: str
    card: AgentCard
    request: str
    task: str
    recalled: Sequence[PromptSkill]
    calls: Sequence[MadeCall]
    output: str = ""
    code: str = ""
    results: Sequence[str] = ()
    seen: Sequence[str] = ()
    uncertain: bool = False
    has_verdict: bool = True

    def followed(self, skill: PromptSkill) -> bool:
        """Whether the calls of a skill were made in order."""
        return skill.was_followed([(call.tool, call.arguments) for call in self.calls])


@dataclass(frozen=True, slots=True)
class SkillSearch:
    """All skills that a task was compared with, best first, and those that it recalls.

    It recalls none if `certainty` doesn't reach `cut`. `warning` says why vectors weren't used where they should be.
    """

    ranked: Sequence[RankedSkill] = ()
    recalled: Sequence[PromptSkill] = ()
    certainty: float = -math.inf
    cut: float = 0.0
    warning: str = ""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a skill belongs: `new` stores it, None if nothing has to be; `resembles` is the id of a stored one."""

    new: NewSkill | None
    resembles: str | None = None


@dataclass(frozen=True, slots=True)
class Lesson:
    """What a finished task adds: uses of skills, and a new skill if it teaches one."""

    uses: Sequence[SkillUse] = ()
    learned: NewSkill | None = None


@dataclass(slots=True)
class RunSkills:
    """Collects lessons until the next flush: tasks that end together are in one statement."""

    sink: RunSink
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


@dataclass(slots=True)
class SkillMemory:
    """Recalls and learns skills of one tenant at a time. It never fails a task.

    Without an embedder, or while it fails, tasks are compared by words and characters only.
    """

    repository: SkillRepository
    embedder: Embedder | None
    redact: Redact
    tracer: Tracer
    clock: Clock
    _failure: str = ""
    _retry_at: float = 0.0
    _sizes: dict[str, tuple[int, float]] = field(default_factory=dict[str, tuple[int, float]])
    _queries: dict[tuple[str, str], SkillQuery] = field(default_factory=dict[tuple[str, str], SkillQuery])
    _read: dict[Hashable, _Rows] = field(default_factory=dict[Hashable, _Rows])

    async def recall(self, tenant: str, card: AgentCard, task: str) -> SkillSearch:
        """Return at most three skills that fit a task, of those that need only tools of the agent's card."""
        if not card.tools:
            return SkillSearch()
        with self.tracer.span("recall", SpanKind.RETRIEVER, lambda: {"input": task}) as span:
            try:
                found = await self.search(tenant, card.tools, task)
            except DatabaseUnavailableError as error:
                span.fail(str(error))
                return SkillSearch()
            except Exception as error:  # noqa: BLE001 - a task does without skills
                _log.exception("no skills were recalled")
                span.fail(type(error).__name__)
                return SkillSearch()
            span.set(lambda: {"output": [{"id": skill.id, "task": skill.template} for skill in found.recalled]})
            return found

    async def search(self, tenant: str, tools: Sequence[ToolDefinition], task: str) -> SkillSearch:
        """Return how active skills compare with a task, of those that need only `tools`.

        Raises DatabaseUnavailableError.
        """
        size = await self._size(tenant)
        if not size:
            return SkillSearch()
        query = await self.query(tenant, task)
        search = self.repository.candidates_by_index if size > COMPARED_EACH else self.repository.candidates
        candidates = await search(tenant, _hashes(tools), query)
        found = await asyncio.to_thread(ranked, tenant, query.text, candidates.examples, candidates.skills)
        ids = [skill.skill_id for skill in found.fitting]
        rows = await self._recalled(tenant, ids, candidates.examples) if ids else ()
        known = {skill.id for text, skill in rows if text == self.redact(task)}
        changing = {tool.full_name: tool.input_schema for tool in tools if tool.effect is not Effect.READ}
        nearest = {skill.skill_id: skill.nearest for skill in found.fitting}
        rows = sorted(rows, key=lambda row: row[0] != nearest[row[1].id])  # as the calls of each task are the same
        shown = [for_task(replace(skill, known=skill.id in known), text, task, changing) for text, skill in rows]
        first = {skill.id: skill for skill in reversed(shown) if skill}
        recalled = [first[key] for key in ids if key in first]
        return SkillSearch(found.skills, recalled, found.certainty, found.cut, self._failure)

    async def placed(self, tenant: str, skill: LearnedSkill) -> Placement:
        """Return what stores a skill: as a further task of the one in use with the same calls, else as a new one.

        Nothing is stored of one whose task is known, or that resembles a skill out of use with the same calls. What is
        suspicious is stored apart, unless it resembles a stored skill. Raises DatabaseUnavailableError.
        """
        query = await self.query(tenant, skill.task)
        examples = await self.repository.alike(tenant, skill, query)
        found = await asyncio.to_thread(ranked, tenant, query.text, examples)
        in_use = {example.skill_id for example in examples if example.state in ("active", "suspended")}
        if found.is_same_task and (skill.suspicion or found.skills[0].skill_id not in in_use):
            return Placement(None, found.skills[0].skill_id)
        if skill.suspicion or not in_use:
            self._sizes.pop(tenant, None)
            return Placement(NewSkill(new_id(), skill, query))
        target = min(in_use)
        if any(example.text == skill.task for example in examples if example.skill_id == target):
            return Placement(None, target)
        return Placement(NewSkill(new_id(), skill, query, merged_into=target), target)

    async def query(self, tenant: str, task: str) -> SkillQuery:
        """Return what a task is compared by; without a vector while the embedder fails, or where it has none for it.

        A task that ends is stored by what it was compared by when it began. Of a long task the beginning counts.
        """
        task = task[:TASK_CHARS]
        if (known := self._queries.get((tenant, task))) is not None:
            return known
        words = [word for word in dict.fromkeys(content_words(task)) if len(word) <= _WORD_CHARS]
        if self.embedder is None or self.clock.monotonic() < self._retry_at:
            return SkillQuery(task, words)
        try:
            (vector,) = await self.embedder.embed([task])
        except StarlingError as error:
            self._failure = "Skills are recalled by words only: the embedding model can't be used now."
            self._retry_at = self.clock.monotonic() + _RETRY_SECONDS
            _log.warning("skills are recalled by words only: %s", error)
            return SkillQuery(task, words)
        self._failure = ""
        query = SkillQuery(task, words, vector, self.embedder.name) if any(vector) else SkillQuery(task, words)
        self._queries[tenant, task] = query
        if len(self._queries) > _KEPT:
            del self._queries[next(iter(self._queries))]
        return query

    async def lesson(self, done: FinishedTask) -> Lesson:
        """Return what a finished task's flush adds: the use of each skill that it had, and what it teaches."""
        worked, had = bool(done.output), done.recalled
        if not worked and done.code not in _BLAMED:  # an outage, a limit or a person's refusal says nothing of skills
            return Lesson()
        uses = [
            SkillUse(one.id, success=worked and done.has_verdict and done.followed(one), failure=not worked)
            for one in had
        ]
        try:
            return Lesson(uses, await self._learned(done))
        except DatabaseUnavailableError as error:
            _log.debug("a skill was not stored: %s", error)
        except Exception:  # noqa: BLE001 - the task has its result without a skill
            _log.exception("a skill was not stored")
        return Lesson(uses)

    async def _recalled(self, tenant: str, ids: Sequence[str], examples: Sequence[SkillExample]) -> _Rows:
        """Return the tasks of skills, from memory if none was added since: stored ones never change."""
        key = tenant, frozenset((example.skill_id, example.text) for example in examples if example.skill_id in ids)
        if (rows := self._read.get(key)) is None:
            rows = self._read[key] = await self.repository.recalled(tenant, ids)
            if len(self._read) > _KEPT_RECALLED:
                del self._read[next(iter(self._read))]
        return rows

    async def _learned(self, done: FinishedTask) -> NewSkill | None:
        """Return what stores the task as a new skill, or as a further task of one with the same calls."""
        if any(known.known and len(known.calls) == len(done.calls) and done.followed(known) for known in done.recalled):
            return None
        if not (skill := self._taught(done)):
            return None
        same = (known for known in done.recalled if known.shape == skill.shape and done.followed(known))
        if (followed := next(same, None)) is None:
            return (await self.placed(done.tenant, skill)).new
        if skill.suspicion:
            return None
        return NewSkill(new_id(), skill, await self.query(done.tenant, skill.task), followed.id)

    def _taught(self, done: FinishedTask) -> LearnedSkill | None:
        """Return what a task teaches; None where it failed, only talked, wasn't reviewed, or may be done in part."""
        if not done.has_verdict or not done.output or not done.calls or done.uncertain or len(done.calls) > MOST_CALLS:
            return None
        if len(done.task) > TASK_CHARS or is_too_long(done.calls):
            return None
        tools, redact = _hashes(done.card.tools), hiding_secrets(self.redact, done.calls)
        template, calls = generalized(TaskTexts(done.task, done.request, done.results), done.calls, redact)
        if len(template) > 2 * TASK_CHARS:
            return None
        arguments = (canonical(call.arguments) for call in done.calls)
        return LearnedSkill(
            task=redact(done.task),
            template=template,
            calls=calls,
            outcome=redact(done.output)[:OUTCOME_CHARS],
            tools={call.tool: tools[call.tool] for call in done.calls},
            agent_kind=done.card.kind,
            agent=done.card.name,
            source_path=done.path,
            suspicion=suspicion((done.task, done.request, *done.results, *done.seen, *arguments)),
        )

    async def _size(self, tenant: str) -> int:
        """Return about how many tasks a tenant's skills have; 0 is counted anew each time."""
        size, until = self._sizes.get(tenant, (0, 0.0))
        if size and self.clock.monotonic() < until:
            return size
        size = await self.repository.count(tenant, COMPARED_EACH + 1)
        if size:
            self._sizes[tenant] = size, self.clock.monotonic() + _RECOUNT_SECONDS
        return size


def _hashes(tools: Sequence[ToolDefinition]) -> Mapping[str, str]:
    return {tool.full_name: tool.hash for tool in tools}
