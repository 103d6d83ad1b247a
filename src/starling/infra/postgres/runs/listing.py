"""The list of a tenant's runs, and the details of one run."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from sqlalchemy import ColumnElement, Select, Text, and_, cast, exists, false, func, or_, select

from starling.core.runs import RunStatus
from starling.infra.postgres.engine import Repository
from starling.infra.postgres.tables.run_records import runs, steps

ENDING_SCAN = 100_000
_INPUT_CHARS = 500
_CLOCKS: Final = timedelta(hours=1)  # by which those of processes and of Postgres may differ


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run in a list. `seconds` is the time from acceptance to end, or until now; `input` is truncated."""

    tenant: str
    run_id: str
    thread_id: str
    status: RunStatus
    created_at: datetime
    seconds: float
    input: str


@dataclass(frozen=True, slots=True)
class EpochRange:
    """Epochs from number `first` on, up to but without `end`, which were active from `begun` until `until`."""

    first: int
    end: int | None
    begun: datetime
    until: datetime | None


@dataclass(frozen=True, slots=True)
class PromptFilter:
    """Selects runs with a model call that used the text of this hash, which these epochs pin."""

    hash: str
    epochs: Sequence[EpochRange]


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Selects runs by thread, status, moment, id and prompt, and those older than the run with id `before`.

    `ending` is that of the id, looked for among the latest `ENDING_SCAN` runs of the tenant.
    """

    thread_id: str | None = None
    status: RunStatus | None = None
    before: str | None = None
    ending: str | None = None
    prompt: PromptFilter | None = None
    since: datetime | None = None
    id: str | None = None


_ALL = RunFilter()


class RunListing(Repository):
    """Queries over the runs of a tenant. Raises DatabaseUnavailableError."""

    async def latest(self, tenant: str | None, *, limit: int, which: RunFilter = _ALL) -> Sequence[RunSummary]:
        """Return the latest runs, newest first; without a tenant the unfinished ones of all."""
        seconds = func.extract("epoch", func.coalesce(runs.c.ended_at, func.now()) - runs.c.created_at)
        beginning = func.left(runs.c.input, _INPUT_CHARS)
        query = (
            select(runs.c.tenant, runs.c.id, runs.c.thread_id, runs.c.status, runs.c.created_at, seconds, beginning)
            .where(*_conditions(tenant, which))
            .order_by(runs.c.id.desc())  # ids sort by creation time
            .limit(limit)
        )
        async with self.reading() as connection:
            found = await connection.execute(query)
            return [RunSummary(*row[:3], RunStatus(row.status), row.created_at, float(row[5]), row[6]) for row in found]


def _conditions(tenant: str | None, which: RunFilter) -> list[ColumnElement[bool]]:
    conditions = [runs.c.ended_at.is_(None) if tenant is None else runs.c.tenant == tenant]
    if which.thread_id is not None:
        conditions.append(runs.c.thread_id == which.thread_id)
    if which.status is not None:
        conditions.append(runs.c.status == which.status)
        if not which.status.terminal:
            conditions.append(runs.c.ended_at.is_(None))  # so that the index of unfinished runs is used
    if which.id is not None:
        conditions.append(runs.c.id == which.id)
    if which.since is not None:
        conditions.append(runs.c.created_at >= which.since)
    if which.before is not None:
        conditions.append(runs.c.id < which.before)
    if which.ending is not None:
        conditions.append(runs.c.id.in_(_ending_in(conditions[0], which.ending)))
    if which.prompt is not None:
        used = steps.c.metadata["prompt"]["hash"].astext == which.prompt.hash
        used = exists().where(steps.c.tenant == runs.c.tenant, steps.c.run_id == runs.c.id, used)
        conditions += [or_(false(), *map(_accepted_in, which.prompt.epochs)), used]
    return conditions


def _accepted_in(found: EpochRange) -> ColumnElement[bool]:
    """Return the condition for runs of these epochs; bounds of ids, which begin with a time, let the index be used."""
    begun = [runs.c.epoch >= found.first, runs.c.id >= _id_at(found.begun - _CLOCKS)]
    if found.end is None or found.until is None:
        return and_(*begun)
    return and_(*begun, runs.c.epoch < found.end, runs.c.id < _id_at(found.until + _CLOCKS))


def _id_at(moment: datetime) -> str:
    """Return the lowest id that is made at a time."""
    return str(UUID(int=int(moment.timestamp() * 1_000) << 80))


def _ending_in(listed: ColumnElement[bool], ending: str) -> Select[tuple[str]]:
    """Return the query for the ids that end in these hex digits, among the latest runs that are listed."""
    latest = select(runs.c.id).where(listed).order_by(runs.c.id.desc()).limit(ENDING_SCAN).subquery()
    digits = func.replace(cast(latest.c.id, Text), "-", "")
    return select(latest.c.id).where(func.right(digits, len(ending)) == ending)
