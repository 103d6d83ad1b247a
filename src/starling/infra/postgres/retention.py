"""Forgetting what ended runs left: by age, in small transactions, beside runs that go on."""

from collections import Counter
from collections.abc import Mapping
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

from starling.infra.postgres.artifacts import BEFORE_ALL, Place, forget_contents, unreferred
from starling.infra.postgres.engine import Engine, translated
from starling.infra.postgres.outbox import DELIVERY_DAYS
from starling.infra.postgres.tables import (
    artifacts,
    audit,
    audit_events,
    events,
    idempotency_keys,
    interrupts,
    journal,
    ledger,
    run_artifacts,
    runs,
    steps,
)

type Condition = ColumnElement[bool]
type RunPlace = tuple[str, str]
"""A tenant and a run's id: runs are gone through in this order."""

_BEFORE_ALL_RUNS: Final[RunPlace] = ("", "00000000-0000-0000-0000-000000000000")
_LIMIT_LOCKS = text("SELECT set_config('lock_timeout', '2s', true)")  # whoever changes a table's form goes first
_UNSETTLED = and_(ledger.c.settled_at.is_(None), ledger.c.state.in_(("dispatched", "in_doubt")))
_SETTLED, _ANSWERED = not_(_UNSETTLED), interrupts.c.state != "open"


@dataclass(frozen=True, slots=True)
class Selection:
    """What is to go: what is older than `age`, of one tenant or of all; the audit trail only where it is asked for."""

    age: timedelta
    tenant: str | None = None
    audit: bool = False


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What went, or would go: rows of each table, and of how many runs.

    `ended` is how many runs there are that ended before the moment, whether they were pruned earlier or now;
    `unsettled` how many of their calls stay because nobody knows whether they were made.
    """

    before: datetime
    ended: int
    unsettled: int
    runs: int = 0
    rows: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def total(self) -> int:
        """How many rows in all."""
        return sum(self.rows.values())


def _of_run(table: Table, run: Table | CTE) -> Condition:
    return and_(table.c.tenant == run.c.tenant, table.c.run_id == run.c.id)


@dataclass(frozen=True, slots=True)
class _Old:
    """What is old: the moment, and whose."""

    before: datetime
    which: Selection

    def runs(self) -> Select[str, str, int]:
        """Runs that have something to forget, and the number up to which their streams go.

        `done` stays, and an error right before it: they tell how the run ended.
        """
        error = exists().where(_of_run(events, runs), events.c.seq == runs.c.seq - 1, events.c.type == "error")
        kept = case((error, 2), else_=1)
        untrimmed = and_(runs.c.trimmed == 0, runs.c.seq > 1)
        settled, answered, referring = (
            exists().where(_of_run(ledger, runs), _SETTLED),
            exists().where(_of_run(interrupts, runs), _ANSWERED),
            exists().where(_of_run(run_artifacts, runs)),
        )
        columns = (runs.c.tenant, runs.c.id, (runs.c.seq - kept).label("last"))
        return select(*columns).where(self.ended(), or_(untrimmed, settled, answered, referring))

    def ended(self) -> Condition:
        return and_(runs.c.ended_at < self.before, self._mine(runs))

    def by_age(self) -> Mapping[Table, tuple[ColumnElement[Any], Condition]]:
        """What goes by its own age: the key of each table's rows beside the tenant, and which of them."""
        ended = exists().where(_of_run(idempotency_keys, runs), runs.c.ended_at < self.before)
        told = audit_events.c.delivered_at.is_not(None)
        past = audit_events.c.created_at <= func.now() - timedelta(days=DELIVERY_DAYS)
        found = {
            idempotency_keys: (idempotency_keys.c.key, ended),
            audit_events: (audit_events.c.id, or_(told, past)),
        }
        if self.which.audit:
            found[audit] = (audit.c.id, true())
        return {
            table: (key, and_(table.c.created_at < self.before, self._mine(table), condition))
            for table, (key, condition) in found.items()
        }

    def contents(self) -> Select[int]:
        """How many artifacts nobody will refer to any more, once the runs have forgotten theirs."""
        going = exists().where(_of_run(run_artifacts, runs), self.ended())
        return select(func.count().label("count")).select_from(artifacts).where(unreferred(self.which.tenant, going))

    def _mine(self, table: Table) -> Condition:
        return true() if self.which.tenant is None else table.c.tenant == self.which.tenant


def _details(old: CTE) -> Mapping[Table, Condition]:
    """What goes of each run, and which rows. Nobody forgets a call while nobody knows whether it was made."""
    conditions = {
        events: events.c.seq <= old.c.last,
        steps: true(),
        journal: true(),
        ledger: _SETTLED,
        interrupts: _ANSWERED,
        run_artifacts: true(),
    }
    return {table: and_(_of_run(table, old), condition) for table, condition in conditions.items()}


def _count(rows: CTE, name: str) -> ColumnElement[int]:
    return select(func.count()).select_from(rows).scalar_subquery().label(name)


def _forgetting(old: CTE) -> Select[*tuple[Any, ...]]:
    """One statement for some runs: it deletes their details and says up to which number their streams are trimmed."""
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
    """Removes what is old. A run that hasn't ended is never touched, nor waited for.

    Each batch is a transaction: whoever is cut off begins again and goes on where it was. Two at once share the work.
    """

    def __init__(self, engine: Engine, *, runs_at_once: int = 100, rows_at_once: int = 5_000) -> None:
        self._engine = engine
        self._runs_at_once = runs_at_once
        self._rows_at_once = rows_at_once

    async def look(self, which: Selection) -> Forgotten:
        """Return what `prune` would remove. Raises DatabaseUnavailableError."""
        old = await self._old(which)
        some = old.runs().cte("old")
        counted = func.count().label("count")
        queries: dict[str, Select[int]] = {"runs": select(counted).select_from(some)}
        for table, condition in _details(some).items():
            queries[table.name] = select(counted).select_from(table.join(some, condition))
        for table, (_, condition) in old.by_age().items():
            queries[table.name] = select(counted).select_from(table).where(condition)
        queries[artifacts.name] = old.contents()
        found = Counter({name: (await self._row(query))["count"] for name, query in queries.items()})
        return await self._forgotten(old, found)

    async def prune(self, which: Selection) -> Forgotten:
        """Remove what is old and return what went. Raises DatabaseUnavailableError; what went by then is gone."""
        old = await self._old(which)
        found = await self._prune_runs(old)
        for table, (key, condition) in old.by_age().items():
            found[table.name] = await self._prune_rows(table, key, condition)
        found[artifacts.name] = await self._prune_contents(which.tenant)
        return await self._forgotten(old, found)

    async def _prune_runs(self, old: _Old) -> Counter[str]:
        found = Counter[str]()
        place = tuple_(runs.c.tenant, runs.c.id)
        query = old.runs().order_by(runs.c.tenant, runs.c.id).limit(self._runs_at_once)
        query = query.with_for_update(of=runs, skip_locked=True)
        last = _BEFORE_ALL_RUNS
        while True:
            gone = await self._row(_forgetting(query.where(place > last).cte("old")))
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
        total, last = 0, cast("Place | None", BEFORE_ALL)
        while last is not None:
            with translated():
                async with self._engine.begin() as connection:
                    await connection.execute(_LIMIT_LOCKS)
                    count, last = await forget_contents(connection, tenant, last, self._rows_at_once)
            total += count
        return total

    async def _old(self, which: Selection) -> _Old:
        moment = await self._row(select((func.now() - which.age).label("before")))
        return _Old(moment["before"], which)

    async def _forgotten(self, old: _Old, found: Counter[str]) -> Forgotten:
        ended = select(func.count()).select_from(runs).where(old.ended()).scalar_subquery().label("ended")
        calls = ledger.join(runs, _of_run(ledger, runs))
        unsettled = (
            select(func.count()).select_from(calls).where(old.ended(), _UNSETTLED).scalar_subquery().label("unsettled")
        )
        counts = await self._row(select(ended, unsettled))
        rows = {name: count for name, count in found.items() if count and name != "runs"}
        return Forgotten(old.before, **counts, runs=found["runs"], rows=rows)

    async def _row(self, query: Select[*tuple[Any, ...]]) -> RowMapping:
        with translated():
            async with self._engine.begin() as connection:
                await connection.execute(_LIMIT_LOCKS)
                return (await connection.execute(query)).mappings().one()
