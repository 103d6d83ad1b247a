"""Deletes old rows of ended runs in small transactions, without blocking active runs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, cast

from sqlalchemy import (
    CTE,
    ColumnElement,
    RowMapping,
    Select,
    Table,
    and_,
    case,
    delete,
    exists,
    func,
    literal,
    not_,
    or_,
    select,
    text,
    true,
    tuple_,
    update,
)

from starling.core.tool_calls import AFTER_RUN_END
from starling.infra.postgres.artifacts import FIRST_CONTENT, ContentKey, delete_unreferenced_contents, unreferenced
from starling.infra.postgres.audit import DELIVERY_DAYS
from starling.infra.postgres.engine import Engine, changing, reading
from starling.infra.postgres.tables.access import audit, audit_events
from starling.infra.postgres.tables.registry import skills
from starling.infra.postgres.tables.run_records import (
    artifacts,
    call_claims,
    chat_answers,
    events,
    feedback,
    idempotency_keys,
    interrupts,
    journal,
    ledger,
    run_artifacts,
    runs,
    states,
    steps,
    threads,
)

type Condition = ColumnElement[bool]
type RunCursor = tuple[str, str]
"""A tenant and a run's id: the order in which runs are scanned."""

_FIRST_RUN: Final[RunCursor] = ("", "00000000-0000-0000-0000-000000000000")
_LIMIT_LOCKS = text("SELECT set_config('lock_timeout', '2s', true)")  # a migration's lock takes precedence
_UNSETTLED = and_(ledger.c.settled_at.is_(None), ledger.c.state.in_(AFTER_RUN_END))
_SETTLED, _ANSWERED = not_(_UNSETTLED), interrupts.c.state != "open"


@dataclass(frozen=True, slots=True)
class PruneSelection:
    """What to delete of a tenant or of all, if older than `age`: details of runs, the audit trail, skills, threads."""

    age: timedelta
    tenant: str | None = None
    audit: bool = False
    skills: bool = False
    threads: bool = False
    runs: bool = True


@dataclass(frozen=True, slots=True)
class RetentionReport:
    """What was or would be deleted: rows by table, and the number of runs they belong to.

    `ended` is the number of runs that ended before `before`, whether pruned earlier or now; `unsettled` is the
    number of their calls that stay because it is not known whether they were made.
    """

    before: datetime
    ended: int
    unsettled: int
    runs: int = 0
    rows: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def total(self) -> int:
        """The number of rows in all tables."""
        return sum(self.rows.values())


def _of_run(table: Table, run: Table | CTE) -> Condition:
    return and_(table.c.tenant == run.c.tenant, table.c.run_id == run.c.id)


@dataclass(frozen=True, slots=True)
class _OldRows:
    """Queries for the rows that are older than `before`."""

    before: datetime
    which: PruneSelection

    def runs(self) -> Select[str, str, int]:
        """Select the runs that have rows to delete, with the number up to which their events are deleted.

        `done` stays, and an error right before it: they contain how the run ended.
        """
        error = exists().where(_of_run(events, runs), events.c.seq == runs.c.seq - 1, events.c.type == "error")
        kept = case((error, 2), else_=1)
        untrimmed = and_(runs.c.trimmed == 0, runs.c.seq > 1)
        settled, answered, referring, judged = (
            exists().where(_of_run(ledger, runs), _SETTLED),
            exists().where(_of_run(interrupts, runs), _ANSWERED),
            exists().where(_of_run(run_artifacts, runs)),
            exists().where(_of_run(feedback, runs)),
        )
        columns = (runs.c.tenant, runs.c.id, (runs.c.seq - kept).label("last"))
        return select(*columns).where(self.ended(), or_(untrimmed, settled, answered, referring, judged))

    def ended(self) -> Condition:
        return and_(literal(self.which.runs), runs.c.ended_at < self.before, self._mine(runs))

    def by_age(self) -> Mapping[Table, tuple[ColumnElement[Any], Condition]]:
        """Return the tables whose rows are deleted by their own age, with key column (beside tenant) and condition."""
        ended = exists().where(_of_run(idempotency_keys, runs), runs.c.ended_at < self.before)
        delivered = audit_events.c.delivered_at.is_not(None)
        past = audit_events.c.created_at <= func.now() - timedelta(days=DELIVERY_DAYS)
        open_runs = exists().where(
            _of_run(call_claims, runs), or_(runs.c.ended_at.is_(None), runs.c.ended_at >= self.before)
        )
        of_runs = {
            idempotency_keys: (idempotency_keys.c.key, ended),
            chat_answers: (
                chat_answers.c.hash,
                exists().where(_of_run(chat_answers, runs), runs.c.ended_at < self.before),
            ),
            call_claims: (call_claims.c.key, not_(open_runs)),
            audit_events: (audit_events.c.id, or_(delivered, past)),
        }
        found = of_runs if self.which.runs else {}
        if self.which.audit:
            found[audit] = (audit.c.id, true())
        if self.which.skills:
            found[skills] = (skills.c.id, not_(self._recent_tasks()))
        return {
            table: (key, and_(table.c.created_at < self.before, self._mine(table), condition))
            for table, (key, condition) in found.items()
        }

    def _recent_tasks(self) -> Condition:
        """Whether a skill was used, or any of its tasks was stored, since `before`."""
        other = skills.alias("other")
        of_one = func.coalesce(other.c.merged_into, other.c.id) == func.coalesce(skills.c.merged_into, skills.c.id)
        is_recent = or_(other.c.created_at >= self.before, other.c.last_used_at >= self.before)
        return exists().where(other.c.tenant == skills.c.tenant, of_one, is_recent)

    def contents(self) -> Select[int]:
        """Count the artifacts that have no reference left once those of the old runs are deleted."""
        going = exists().where(_of_run(run_artifacts, runs), self.ended())
        return select(func.count().label("count")).select_from(artifacts).where(unreferenced(self.which.tenant, going))

    def threads(self) -> Select[str, str, datetime]:
        """Select the threads of which nothing is newer: no run goes on or ended since, and no state was added."""
        of_thread = and_(runs.c.tenant == threads.c.tenant, runs.c.thread_id == threads.c.id)
        later = exists().where(of_thread, or_(runs.c.ended_at.is_(None), runs.c.ended_at >= self.before))
        its = and_(states.c.tenant == threads.c.tenant, states.c.thread_id == threads.c.id)
        added = exists().where(its, states.c.ts >= self.before.timestamp())
        old = and_(threads.c.created_at < self.before, self._mine(threads))
        return select(threads.c.tenant, threads.c.id, literal(self.before)).where(old, not_(or_(later, added)))

    def _mine(self, table: Table) -> Condition:
        return true() if self.which.tenant is None else table.c.tenant == self.which.tenant


def _details(old: CTE) -> Mapping[Table, Condition]:
    """Return the condition for each table's rows of a run. Calls stay while it is not known whether they were made."""
    conditions = {
        events: events.c.seq <= old.c.last,
        steps: true(),
        journal: true(),
        ledger: _SETTLED,
        interrupts: _ANSWERED,
        run_artifacts: true(),
        feedback: true(),
    }
    return {table: and_(_of_run(table, old), condition) for table, condition in conditions.items()}


def _count(rows: CTE, name: str) -> ColumnElement[int]:
    return select(func.count()).select_from(rows).scalar_subquery().label(name)


def _delete_batch(old: CTE) -> Select[*tuple[Any, ...]]:
    """Return the statement that deletes the details of a batch of runs and stores the trimmed event number."""
    gone = {
        table.name: delete(table).where(condition).returning(literal(1).label("row")).cte(f"gone_{table.name}")
        for table, condition in _details(old).items()
    }
    upto = func.greatest(runs.c.trimmed, old.c.last)
    trimmed = update(runs).where(runs.c.tenant == old.c.tenant, runs.c.id == old.c.id).values(trimmed=upto)
    counts = [_count(rows, table) for table, rows in gone.items()]
    last = [
        select(column).order_by(old.c.tenant.desc(), old.c.id.desc()).limit(1).scalar_subquery().label(name)
        for name, column in (("last_tenant", old.c.tenant), ("last_id", old.c.id))
    ]
    return select(*counts, _count(old, "runs"), *last).add_cte(trimmed.cte("trimmed"))


class Retention:
    """Deletes old rows. Runs that have not ended are neither changed nor waited for.

    Each batch is a transaction: after an interruption, the next call continues. Concurrent calls share the work.
    """

    def __init__(self, engine: Engine, *, runs_at_once: int = 100, rows_at_once: int = 5_000) -> None:
        self._engine = engine
        self._runs_at_once = runs_at_once
        self._rows_at_once = rows_at_once

    async def preview(self, which: PruneSelection) -> RetentionReport:
        """Return what `prune` would delete. Raises DatabaseUnavailableError."""
        old = await self._old_rows(which)
        some = old.runs().cte("old")
        counted = func.count().label("count")
        queries: dict[str, Select[int]] = {"runs": select(counted).select_from(some)}
        for table, condition in _details(some).items():
            queries[table.name] = select(counted).select_from(table.join(some, condition))
        for table, (_, condition) in old.by_age().items():
            queries[table.name] = select(counted).select_from(table).where(condition)
        queries[artifacts.name] = old.contents()
        found = Counter({name: (await self._row(query))["count"] for name, query in queries.items()})
        return await self._report(old, found)

    async def old_threads(self, which: PruneSelection) -> Sequence[tuple[str, str, datetime]]:
        """Return tenant and id of each unused thread, and since when it is. Raises DatabaseUnavailableError."""
        if not which.threads:
            return ()
        query = (await self._old_rows(which)).threads()
        async with reading(self._engine) as connection:
            return [(tenant, thread, since) for tenant, thread, since in await connection.execute(query)]

    async def prune(self, which: PruneSelection) -> RetentionReport:
        """Delete old rows and return the report. Raises DatabaseUnavailableError; earlier batches stay deleted."""
        old = await self._old_rows(which)
        found = await self._prune_runs(old)
        for table, (key, condition) in old.by_age().items():
            found[table.name] = await self._prune_rows(table, key, condition)
        found[artifacts.name] = await self._prune_contents(which.tenant)
        return await self._report(old, found)

    async def _prune_runs(self, old: _OldRows) -> Counter[str]:
        found = Counter[str]()
        place = tuple_(runs.c.tenant, runs.c.id)
        query = old.runs().order_by(runs.c.tenant, runs.c.id).limit(self._runs_at_once)
        query = query.with_for_update(of=runs, skip_locked=True)
        last = _FIRST_RUN
        while True:
            gone = await self._row(_delete_batch(query.where(place > last).cte("old")))
            if not gone["runs"]:
                return found
            last = gone["last_tenant"], gone["last_id"]
            found.update({name: count for name, count in gone.items() if name not in ("last_tenant", "last_id")})

    async def _prune_rows(self, table: Table, key: ColumnElement[Any], condition: Condition) -> int:
        some = select(table.c.tenant, key).where(condition).order_by(table.c.tenant, key).limit(self._rows_at_once)
        some = some.with_for_update(skip_locked=True).correlate(None)
        gone = delete(table).where(tuple_(table.c.tenant, key).in_(some)).returning(literal(1).label("row")).cte("gone")
        query = select(func.count().label("count")).select_from(gone)
        total, count = 0, self._rows_at_once
        while count == self._rows_at_once:
            count = (await self._row(query))["count"]
            total += count
        return total

    async def _prune_contents(self, tenant: str | None) -> int:
        total, last = 0, cast("ContentKey | None", FIRST_CONTENT)
        while last is not None:
            async with changing(self._engine) as connection:
                await connection.execute(_LIMIT_LOCKS)
                count, last = await delete_unreferenced_contents(connection, tenant, last, self._rows_at_once)
            total += count
        return total

    async def _old_rows(self, which: PruneSelection) -> _OldRows:
        moment = await self._row(select((func.now() - which.age).label("before")))
        return _OldRows(moment["before"], which)

    async def _report(self, old: _OldRows, found: Counter[str]) -> RetentionReport:
        ended = select(func.count()).select_from(runs).where(old.ended()).scalar_subquery().label("ended")
        calls = ledger.join(runs, _of_run(ledger, runs))
        unsettled = (
            select(func.count()).select_from(calls).where(old.ended(), _UNSETTLED).scalar_subquery().label("unsettled")
        )
        counts = await self._row(select(ended, unsettled))
        rows = {name: count for name, count in found.items() if count and name != "runs"}
        return RetentionReport(old.before, **counts, runs=found["runs"], rows=rows)

    async def _row(self, query: Select[*tuple[Any, ...]]) -> RowMapping:
        async with changing(self._engine) as connection:
            await connection.execute(_LIMIT_LOCKS)
            return (await connection.execute(query)).mappings().one()
