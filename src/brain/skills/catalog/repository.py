"""Queries over the skills of a tenant, and changes of them in the transaction of their audit entry."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import RowMapping, Select, Text, cast, delete, func, or_, select, text, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from brain.skills.repository import STORE, NewSkill
from brain.skills.skill import Provenance, SkillState, StoredSkill, call_from_json
from starling.core.errors import ConflictError, NotFoundError
from starling.core.json import storable
from starling.infra.postgres.engine import INDEXES_ONLY, Repository
from starling.infra.postgres.tables.registry import skills

_REMEDY: Final = "`GET /v1/skills` and `starling skill list` show the skills of your tenant."
_PART: Final = skills.alias("part")
_MERGED: Final = (
    select(func.count())
    .where(_PART.c.tenant == skills.c.tenant, _PART.c.merged_into == skills.c.id)
    .scalar_subquery()
    .label("merged")
)
_UNREAD: Final = frozenset({"tenant", "merged_into", "shape", "embedding", "words"})
_COLUMNS: Final = [column for column in skills.c if column.name not in _UNREAD]
_IMPORTED: Final = "'import', NULL, NULL, :shared_by"
_STORE: Final = text(STORE.format(tenant=":tenant", origin=_IMPORTED, beside="", items=":items", stored=""))


@dataclass(frozen=True, slots=True)
class SkillFilter:
    """Selects skills by state, by agent, older than the skill with id `before`, and by the ending of their id."""

    states: Sequence[SkillState] = ()
    agent: str | None = None
    before: str | None = None
    ending: str | None = None


@dataclass(frozen=True, slots=True)
class SkillTask:
    """A further task that the calls of a skill solved: the task of a skill that was merged into it."""

    task: str
    provenance: Provenance
    source_run: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ImportedSkill:
    """A skill of a document, with the state that it is stored in; `code` is what NewSkill leaves out."""

    new: NewSkill
    state: SkillState
    reason: str = ""
    code: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the columns of its row."""
        return {**self.new.to_json(), "state": self.state, "reason": self.reason, "code": self.code}


_ALL: Final = SkillFilter()


class SkillCatalog(Repository):
    """Skills of one tenant at a time. What takes a connection is part of its caller's transaction.

    Those that are merged into another skill are its further tasks. Raises DatabaseUnavailableError.
    """

    async def latest(self, tenant: str, *, limit: int, which: SkillFilter = _ALL) -> Sequence[StoredSkill]:
        """Return the latest skills, newest first."""
        query = _selected(tenant, which).order_by(skills.c.id.desc()).limit(limit)  # ids sort by creation time
        async with self._reading() as connection:
            return [_stored(row) for row in (await connection.execute(query)).mappings()]

    async def named(self, tenant: str, ids: Sequence[str]) -> Mapping[str, StoredSkill]:
        """Return those of these skills that exist, by id."""
        query = _selected(tenant, _ALL).where(skills.c.id.in_(ids))
        async with self._reading() as connection:
            return {row["id"]: _stored(row) for row in (await connection.execute(query)).mappings()}

    async def get(self, tenant: str, skill_id: str) -> StoredSkill:
        """Return a skill. Raises NotFoundError, also for a skill of another tenant."""
        found = await self.named(tenant, [skill_id])
        if skill_id not in found:
            raise NotFoundError("skill", skill_id, _REMEDY)
        return found[skill_id]

    async def tasks(self, tenant: str, ids: Sequence[str]) -> Mapping[str, Sequence[SkillTask]]:
        """Return the further tasks of skills, oldest first, by the id of the skill."""
        columns = [skills.c[name] for name in ("merged_into", "task", "provenance", "source_run", "created_at")]
        query = select(*columns).where(skills.c.tenant == tenant, skills.c.merged_into.in_(ids))
        query = query.order_by(skills.c.created_at, skills.c.id)
        found: dict[str, list[SkillTask]] = {}
        async with self._reading() as connection:
            for skill_id, *values in await connection.execute(query):
                found.setdefault(skill_id, []).append(SkillTask(*values))
        return found

    @asynccontextmanager
    async def _reading(self) -> AsyncGenerator[AsyncConnection]:
        """Yield a connection whose queries read no row of other tenants."""
        async with self.reading() as connection:
            await connection.execute(text(INDEXES_ONLY))
            yield connection

    async def locked(self, connection: AsyncConnection, tenant: str, skill_id: str) -> StoredSkill:
        """Lock and return a skill until the transaction ends. Raises NotFoundError."""
        query = _selected(tenant, _ALL).where(skills.c.id == skill_id).with_for_update(of=skills)
        row = (await connection.execute(query)).mappings().one_or_none()
        if row is None:
            raise NotFoundError("skill", skill_id, _REMEDY)
        return _stored(row)

    async def change(self, connection: AsyncConnection, tenant: str, skill_id: str, values: Mapping[str, Any]) -> None:
        """Set columns of a skill. Raises ConflictError if it would be the second one in use with the same calls."""
        changed = update(skills).where(skills.c.tenant == tenant, skills.c.id == skill_id).values(**values)
        try:
            await connection.execute(changed)
        except IntegrityError:
            raise ConflictError(
                "Another skill in use has the same calls.", "Retire or delete that one first."
            ) from None

    async def delete(self, connection: AsyncConnection, tenant: str, skill_id: str) -> None:
        """Delete a skill with its further tasks."""
        its = or_(skills.c.id == skill_id, skills.c.merged_into == skill_id)
        await connection.execute(delete(skills).where(skills.c.tenant == tenant, its))

    async def store(
        self, connection: AsyncConnection, tenant: str, found: Sequence[ImportedSkill], shared_by: str
    ) -> None:
        """Store imported skills; further tasks of a skill only as long as it has less than it is compared by."""
        written = (json.dumps(storable(item.to_json()), ensure_ascii=False) for item in found)
        items = await asyncio.to_thread(",".join, written)  # a thread, one by one: vectors take long
        values = {"tenant": tenant, "items": f"[{items}]", "shared_by": shared_by}
        await connection.execute(_STORE, values)


def _selected(tenant: str, which: SkillFilter) -> Select[Any]:
    query = select(*_COLUMNS, _MERGED).where(skills.c.tenant == tenant, skills.c.merged_into.is_(None))
    if which.states:
        query = query.where(skills.c.state.in_(which.states))
    if which.agent is not None:
        query = query.where(skills.c.agent == which.agent)
    if which.before is not None:
        query = query.where(skills.c.id < which.before)
    if which.ending is not None:
        digits = func.replace(cast(skills.c.id, Text), "-", "")
        query = query.where(func.right(digits, len(which.ending)) == which.ending)
    return query


def _stored(row: RowMapping) -> StoredSkill:
    values: dict[str, Any] = {**row}
    values["calls"] = tuple(map(call_from_json, row["calls"]))
    return StoredSkill(**values)
