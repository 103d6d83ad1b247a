"""Lists, searches, retires, restores, deletes and exports skills of a tenant; each change with its audit entry."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from brain.registry.cards import AgentCard
from brain.registry.repository import EpochRepository
from brain.registry.service import Registry
from brain.skills.catalog.exchange import SkillDocument
from brain.skills.catalog.repository import SkillCatalog, SkillFilter, SkillTask
from brain.skills.memory import SkillMemory
from brain.skills.repository import suspension
from brain.skills.skill import SkillState, SkillSummary, StoredSkill
from starling.core.errors import ConflictError, NotFoundError
from starling.core.principal import Principal
from starling.core.tool_calls import Effect
from starling.core.tools import ToolDefinition
from starling.infra.postgres.audit import Actor, AuditedChange, record

_EXPORTED: Final[tuple[SkillState, ...]] = ("active", "suspended")
_PAGE: Final = 500
_RESTORED: Final = {"uses": 0, "successes": 0, "failures": 0, "consecutive_failures": 0}


@dataclass(frozen=True, slots=True)
class SkillDetails:
    """A skill with the further tasks that it was merged with, oldest first."""

    skill: StoredSkill
    examples: Sequence[SkillTask]


@dataclass(frozen=True, slots=True)
class SkillMatch:
    """A skill as it compares with a text: `similarity` is the sum of `parts`, each the mean of its three best tasks.

    `characters` compares sequences of characters, `meaning` vectors. `recalled`: a task with this text would have it.
    """

    skill: SkillSummary
    similarity: float
    parts: Mapping[str, float]
    recalled: bool


@dataclass(frozen=True, slots=True)
class SkillMatches:
    """The active skills that are most similar to a text, best first, out of `total` that were compared.

    `certainty` is the similarity of the best one plus its distance to the next one, or to an unrelated skill. Skills
    are recalled only if it reaches `cut`. `warning` says why only words were compared.
    """

    total: int
    skills: Sequence[SkillMatch] = ()
    certainty: float | None = None
    cut: float | None = None
    warning: str = ""


@dataclass(frozen=True, slots=True)
class SkillService:
    """Manages skills. Raises DatabaseUnavailableError."""

    catalog: SkillCatalog
    epochs: EpochRepository
    rosters: Registry
    memory: SkillMemory

    async def show(self, tenant: str, skill_id: str) -> SkillDetails:
        """Return a skill with its further tasks. Raises NotFoundError."""
        skill = await self.catalog.get(tenant, skill_id)
        return SkillDetails(skill, (await self.catalog.tasks(tenant, [skill_id])).get(skill_id, ()))

    async def search(self, caller: Principal, text: str, agent: str | None, limit: int) -> SkillMatches:
        """Return how skills compare with the text of a task, as a run of the caller would compare them.

        Only skills whose tools the caller's grant permits are compared; with `agent` those that need only its tools.
        Raises NotFoundError for an agent that the caller doesn't have.
        """
        tools = await self._tools(caller, agent)
        found = await self.memory.search(caller.tenant, tools, text)
        best = found.ranked[:limit]
        skills = await self.catalog.named(caller.tenant, [ranked.skill_id for ranked in best])
        matches = [
            SkillMatch(
                skills[ranked.skill_id],
                ranked.similarity,
                {"characters": ranked.characters, "meaning": ranked.meaning},
                recalled=any(skill.id == ranked.skill_id for skill in found.recalled),
            )
            for ranked in best
            if ranked.skill_id in skills
        ]
        if not found.ranked:
            return SkillMatches(0, warning=found.warning)
        return SkillMatches(len(found.ranked), matches, found.certainty, found.cut, found.warning)

    async def retire(self, tenant: str, skill_id: str, reason: str, actor: Actor) -> StoredSkill:
        """Take a skill out of use, in whatever state it is; a repetition replaces the reason. Raises NotFoundError."""
        async with self.catalog.changing() as connection:
            former = await self.catalog.locked(connection, tenant, skill_id)
            await self.catalog.change(connection, tenant, skill_id, {"state": "retired", "reason": reason})
            detail = {"tenant": tenant, "reason": reason, "former_state": former.state}
            await record(connection, actor, AuditedChange("skill.retire", skill_id, detail))
            return await self.catalog.locked(connection, tenant, skill_id)

    async def restore(self, tenant: str, skill_id: str, actor: Actor) -> StoredSkill:
        """Take a retired or quarantined skill into use again, with a new record.

        It is suspended if its tools aren't what they were. Raises NotFoundError; ConflictError in other states, and
        if another skill in use has the same calls.
        """
        async with self.catalog.changing() as connection:
            pins = (await self.epochs.begin(connection)).manifest.tool_hashes()
            former = await self.catalog.locked(connection, tenant, skill_id)
            if former.state not in ("retired", "quarantined"):
                raise ConflictError(
                    f"Skill {skill_id} is {former.state}, so there is nothing to restore.",
                    "Only retired and quarantined skills are restored; a suspended one is when its tools are back.",
                )
            reason = suspension(former.tools, pins)
            state = "suspended" if reason else "active"
            await self.catalog.change(connection, tenant, skill_id, {"state": state, "reason": reason, **_RESTORED})
            record_before = {name: getattr(former, name) for name in _RESTORED}
            detail = {"tenant": tenant, "former_state": former.state, "former_reason": former.reason, **record_before}
            await record(connection, actor, AuditedChange("skill.restore", skill_id, detail))
            return await self.catalog.locked(connection, tenant, skill_id)

    async def delete(self, tenant: str, skill_id: str, actor: Actor) -> None:
        """Delete a skill with its further tasks. Raises NotFoundError."""
        async with self.catalog.changing() as connection:
            former = await self.catalog.locked(connection, tenant, skill_id)
            await self.catalog.delete(connection, tenant, skill_id)
            detail = {"tenant": tenant, "former_state": former.state, "merged": former.merged}
            await record(connection, actor, AuditedChange("skill.delete", skill_id, detail))

    async def export(self, tenant: str, which: SkillFilter) -> Sequence[SkillDocument]:
        """Return the documents of skills, newest first; of active and suspended ones if no state is chosen."""
        found: list[SkillDocument] = []
        before = which.before
        while True:
            wanted = SkillFilter(which.states or _EXPORTED, which.agent, before, which.ending)
            page = await self.catalog.latest(tenant, limit=_PAGE, which=wanted)
            tasks = await self.catalog.tasks(tenant, [skill.id for skill in page])
            found += [SkillDocument.of(skill, [part.task for part in tasks.get(skill.id, ())]) for skill in page]
            if len(page) < _PAGE:
                return found
            before = page[-1].id

    async def _tools(self, caller: Principal, agent: str | None) -> list[ToolDefinition]:
        """Return the tools that the caller's runs can call, or those of an agent."""
        number = await self.epochs.active_number()
        cards: Mapping[str, AgentCard] = {}
        if number is not None:
            roster = await self.rosters.roster(number, caller.tenant)
            cards = roster.limited(frozenset(Effect), {}, caller.grant).cards
        if agent is not None and agent not in cards:
            raise NotFoundError("agent", agent, "`starling agent list` shows the existing agents.")
        chosen = cards.values() if agent is None else [cards[agent]]
        return [tool for card in chosen for tool in card.tools]
