"""Imports skills: all lines of a document or none, with one audit entry."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from brain.registry.repository import EpochRepository
from brain.skills.catalog.exchange import SkillDocument, parse
from brain.skills.catalog.repository import ImportedSkill, SkillCatalog
from brain.skills.memory import Placement, SkillMemory
from brain.skills.repository import NewSkill, suspension
from brain.skills.skill import SkillState
from starling.core.ids import new_id
from starling.core.json import canonical
from starling.infra.postgres.audit import Actor, AuditedChange, record

type _Outcome = Literal["stored", "merged", "known"]


@dataclass(frozen=True, slots=True)
class ImportedLine:
    """The outcome of a line: `id` is the new skill, or the earlier one that it was merged with or equals.

    `state` and `reason` are those of a new skill: `quarantined` if a text tries to instruct, `suspended` if a tool
    differs here.
    """

    line: int
    outcome: _Outcome
    id: str
    state: SkillState | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _Placed:
    """A line and the rows that it adds; the first is the skill, or a further task of the skill `id`."""

    line: int
    outcome: _Outcome
    id: str
    rows: Sequence[NewSkill] = ()
    code: str = ""


@dataclass(frozen=True, slots=True)
class SkillImport:
    """Stores skills of other tenants or installations. Raises DatabaseUnavailableError."""

    catalog: SkillCatalog
    epochs: EpochRepository
    memory: SkillMemory

    async def store(self, tenant: str, content: bytes, actor: Actor) -> Sequence[ImportedLine]:
        """Store the skills of JSON lines for a tenant, all or none of them, each under a new id.

        A skill with the same calls as one in use becomes a further task of it; a text that tries to
        instruct puts its skill into quarantine; one whose tools are others here is suspended. Raises
        InvalidRequestError with the lines and fields that are wrong.
        """
        placed = await _placed(self.memory, tenant, await asyncio.to_thread(parse, content, self.memory.redact))
        async with self.catalog.changing() as connection:
            pins = (await self.epochs.begin(connection)).manifest.tool_hashes()
            rows = {line.line: _rows(line, pins) for line in placed}
            await self.catalog.store(connection, tenant, [row for found in rows.values() for row in found], actor.name)
            added = [line.id for line in placed if line.rows]
            detail = {"tenant": tenant, "skills": added, "lines": len(placed)}
            await record(connection, actor, AuditedChange("skill.import", f"tenant {tenant}", detail))
        return [
            ImportedLine(line.line, line.outcome, line.id, rows[line.line][0].state, rows[line.line][0].reason)
            if line.outcome == "stored"
            else ImportedLine(line.line, line.outcome, line.id)
            for line in placed
        ]


async def _placed(memory: SkillMemory, tenant: str, documents: Mapping[int, SkillDocument]) -> list[_Placed]:
    """Return what each line adds beside the skills that are stored."""
    found: list[_Placed] = []
    known: dict[tuple[str, str, str], str] = {}
    mains: dict[tuple[str, str], str] = {}  # the skill that a former line stores, by its calls
    for number, document in documents.items():
        skill = await asyncio.to_thread(document.learned)  # its texts are screened
        calls = skill.shape, canonical(skill.tools)
        if earlier := known.get((*calls, skill.task)):
            found.append(_Placed(number, "known", earlier))
            continue
        if (main := mains.get(calls)) and not skill.suspicion:
            place = Placement(NewSkill(new_id(), skill, await memory.query(tenant, skill.task), main), main)
        else:
            place = await memory.placed(tenant, skill)
        new = [place.new] if place.new else []
        if place.resembles is not None:
            found.append(_Placed(number, "merged" if new else "known", place.resembles, new))
        else:
            further = [await memory.query(tenant, task) for task in document.examples]
            new += [NewSkill(new_id(), replace(skill, task=query.text), query, new[0].id) for query in further]
            found.append(_Placed(number, "stored", new[0].id, new, document.code))
            mains |= {} if skill.suspicion else {calls: new[0].id}
        known[*calls, skill.task] = found[-1].id
    return found


def _rows(line: _Placed, pins: Mapping[str, str]) -> list[ImportedSkill]:
    """Return the rows of a line; only the state of a skill itself matters, not that of its further tasks."""
    if line.outcome != "stored":
        return [ImportedSkill(row, "active") for row in line.rows]
    main, *others = line.rows
    suspended = suspension(main.skill.tools, pins)
    state: SkillState = "quarantined" if main.skill.suspicion else "suspended" if suspended else "active"
    first = ImportedSkill(main, state, main.skill.suspicion or suspended, line.code)
    return [first, *(ImportedSkill(row, "active") for row in others)]
