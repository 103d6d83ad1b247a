"""The one writer of a run: everything that lasts goes through here, in fenced batches."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, cast

from orjson import Fragment
from psycopg.types.json import Jsonb
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.core.clock import lease_time
from starling.core.errors import DatabaseUnavailableError, LeaseLostError, RunUnwritableError
from starling.core.events import AnyEvent, StoredEvent
from starling.core.ids import new_id
from starling.core.runs import Run, RunResult, Step
from starling.infra.fast_json import storable_json, storable_with_json
from starling.infra.postgres.engine import encoded, execute_alone, transaction, translated
from starling.infra.postgres.outbox import TELL_OF_RUN, telling
from starling.infra.postgres.retry_backoff import retry_while_unavailable
from starling.infra.postgres.runs.acceptance import Claim, Connection, RunRepository
from starling.infra.postgres.runs.broadcast import CHANNEL, Broadcast, notice_of

type Write = Callable[[Connection], Awaitable[None]]
"""What else happens in the transaction of a flush, after its statement."""


@dataclass(frozen=True, slots=True)
class Clause:
    """More of a flush's one statement: CTEs that write only where `fenced` has a row, and their values."""

    sql: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Transition:
    """What a flush does to the run's row besides counting: more of its SET. `fenced` has the whole row then."""

    assignments: str
    values: Mapping[str, Any]


type Source = Callable[[], Clause]
"""Gives a clause when its batch is cut; asked once, however often the batch has to be written."""


_LINGER_SECONDS = 0.02
_PATIENCE_SECONDS = 120.0
_CLOSE_SECONDS = 1.0

_log = logging.getLogger(__name__)

# One statement: where the fence has moved on, nothing of it happens.
_FENCED = """
WITH fenced AS (
    UPDATE runs SET seq = seq + %(count)s, flushes = flushes + 1
    WHERE tenant = %(tenant)s AND id = %(id)s AND fence = %(fence)s AND flushes = %(flushes)s
    RETURNING tenant, id),"""
_FENCED_WITH = """
WITH fenced AS (
    UPDATE runs SET {}, seq = seq + %(count)s, flushes = flushes + 1
    WHERE tenant = %(tenant)s AND id = %(id)s AND fence = %(fence)s AND flushes = %(flushes)s
    RETURNING *),"""
_FLUSH = """
told AS (
    INSERT INTO events (tenant, run_id, seq, type, data)
    SELECT fenced.tenant, fenced.id, item.seq, item.type, item.data
    FROM fenced, jsonb_to_recordset(%(events)s) AS item (seq bigint, type text, data jsonb)),
stepped AS (
    INSERT INTO steps (tenant, run_id, id, type, description, metadata)
    SELECT fenced.tenant, fenced.id, item.id, item.type, item.description, item.metadata
    FROM fenced, jsonb_to_recordset(%(steps)s) AS item (id uuid, type text, description text, metadata jsonb)),
journalled AS (
    INSERT INTO journal (tenant, run_id, path, kind, position, index, request_hash, data)
    SELECT fenced.tenant, fenced.id, item.path, item.kind, item.position, item.index, item.request_hash, item.data
    FROM fenced, jsonb_to_recordset(%(journal)s)
    AS item (path text, kind text, position int, index int, request_hash text, data jsonb))"""
_NOTIFY = """,
noticed AS (SELECT pg_notify(%(channel)s, %(notice)s) FROM fenced WHERE %(count)s > 0)
SELECT (SELECT count(*) FROM fenced), (SELECT count(*) FROM noticed)"""
_NOTIFY_NOBODY = """
SELECT count(*) FROM fenced"""

_WAS_WRITTEN = """
SELECT flushes = %(flushes)s + 1 FROM runs WHERE tenant = %(tenant)s AND id = %(id)s AND fence = %(fence)s"""

_ENDED = "status = %(status)s, result = %(result)s, ended_at = now(), lease_until = NULL, worker = NULL"
_WAITS = "status = 'waiting', admitted_at = NULL, lease_until = NULL, worker = NULL"
_TELL = f"written AS (SELECT * FROM fenced),\nreported AS ({TELL_OF_RUN})"  # noqa: S608 - our own text


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One thing that a resumed run must not ask or do again."""

    path: str
    kind: str
    position: int
    index: int
    request_hash: str
    data: Mapping[str, Any]

    def row(self) -> dict[str, Any]:
        """Return the entry as JSON."""
        return {
            "path": self.path,
            "kind": self.kind,
            "position": self.position,
            "index": self.index,
            "request_hash": self.request_hash,
            "data": self.data,
        }


@dataclass(slots=True)
class _Batch:
    events: list[AnyEvent] = field(default_factory=list["AnyEvent"])
    steps: list[tuple[str, Step]] = field(default_factory=list[tuple[str, Step]])
    journal: list[JournalEntry] = field(default_factory=list[JournalEntry])
    sources: list[Source] = field(default_factory=list["Source"])
    passing: list[Source] = field(default_factory=list["Source"])
    transition: Transition | None = None
    writes: Sequence[Write] = ()

    @property
    def empty(self) -> bool:
        return not (self.events or self.steps or self.journal or self.sources or self.passing or self.transition)


@dataclass(frozen=True, slots=True)
class _Cut:
    """A batch in the form in which it is written, once or again."""

    stored: Sequence[StoredEvent]
    statement: str
    values: Mapping[str, Any]
    writes: Sequence[Write]


class RunWriter:
    """Collects what a run writes and flushes it under the run's fence.

    `emit`, `step`, `record` and `add` only collect: what they are given becomes durable together, within
    a few milliseconds or at the next `flush`. After LeaseLostError nothing more is ever written.
    """

    def __init__(
        self, engine: AsyncEngine, claim: Claim, broadcast: Broadcast, *, patience_seconds: float = _PATIENCE_SECONDS
    ) -> None:
        self.run: Run = claim.run
        self._engine = engine
        self._broadcast = broadcast
        self._patience = patience_seconds
        self._seq = claim.seq
        self._flushes = claim.flushes
        self._pending = _Batch()
        self._one_at_a_time = asyncio.Lock()
        self._broken: Exception | None = None
        self._later: asyncio.Task[None] | None = None
        self._writing: set[asyncio.Task[None]] = set()
        self._proven = lease_time()

    def emit(self, event: AnyEvent) -> None:
        """Add an event to the run's stream."""
        self._pending.events.append(event)
        self.flush_soon()

    def step(self, step: Step) -> None:
        """Add an entry to the run's record; it goes with the next batch."""
        self._pending.steps.append((new_id(), step))

    def record(self, entry: JournalEntry) -> None:
        """Add to the journal; it goes with the next batch, together with what is emitted beside it."""
        self._pending.journal.append(entry)

    def add(self, source: Source, *, until_end: bool = False) -> None:
        """Add something of another kind to the next batch; `until_end` where an ended run has no use for it."""
        (self._pending.passing if until_end else self._pending.sources).append(source)

    @property
    def has_told(self) -> bool:
        """Whether events, steps or journal entries wait for the next batch, or are being written just now."""
        told = self._pending.events or self._pending.steps or self._pending.journal
        return bool(told) or self._one_at_a_time.locked()

    @property
    def proven_seconds(self) -> float:
        """How long ago the newest write began that found the run still ours."""
        return lease_time() - self._proven

    def flush_soon(self) -> None:
        """Make what was collected durable within a few milliseconds, with whatever comes until then."""
        if self._later is None or self._later.done():
            self._later = asyncio.get_running_loop().create_task(self._linger(), name=f"flush-{self.run.id}")

    async def flush(self) -> None:
        """Make everything that was collected so far durable. A write that has begun outlives its cancelled caller.

        Raises LeaseLostError, or RunUnwritableError when Postgres stayed away for too long.
        """
        writing = asyncio.get_running_loop().create_task(self._flush(), name=f"write-{self.run.id}")
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)
        await asyncio.shield(writing)

    async def _flush(self) -> None:
        async with self._one_at_a_time:
            if self._broken:
                raise self._broken
            if self._pending.empty:
                return
            batch, self._pending = self._pending, _Batch()
            try:
                await self._write_batch(batch)
            except Exception as error:
                self._broken = error
                raise

    def drop_unwritable(self) -> None:
        """Go on without a batch that Postgres refused for what was in it, so that the run's failure can be written."""
        if not isinstance(self._broken, (LeaseLostError, DatabaseUnavailableError)):
            self._broken = None

    async def end(
        self, result: RunResult, last: AnyEvent, repository: RunRepository, also: Sequence[Clause] = ()
    ) -> None:
        """End the run: its last event, its result, `also` and the admission of the next run in one transaction."""

        async def admit_next(connection: Connection) -> None:
            await repository.admit(connection, self.run.tenant)

        document = _json(result.model_dump(mode="json"))
        self._pending.events.append(last)
        self._pending.passing.clear()
        self._pending.sources += [partial(_same, clause) for clause in (*also, Clause(_TELL, telling()))]
        self._pending.transition = Transition(_ENDED, {"status": result.status, "result": document})
        self._pending.writes = [admit_next]
        await self.flush()

    async def suspend(self, wake: Write) -> None:
        """Let the run wait, held by nobody and out of its tenant's cap, with all that was collected.

        `wake` is the rest of that transaction: it queues the run again where it needn't wait any more.
        """
        self._pending.transition = Transition(_WAITS, {})
        self._pending.writes = [wake]
        await self.flush()

    async def close(self) -> None:
        """Let what is being written end, but not for long; what was only collected is dropped."""
        tasks = [task for task in (self._later, *self._writing) if task]
        if self._later:
            self._later.cancel()
        if self._writing:
            await asyncio.wait(self._writing, timeout=_CLOSE_SECONDS)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _linger(self) -> None:
        try:
            while not self._pending.empty:  # more may come while some is being written
                await asyncio.sleep(_LINGER_SECONDS)
                await self.flush()
        except (LeaseLostError, DatabaseUnavailableError) as error:
            _log.warning("run %s can't be written: %s", self.run.id, error)  # the next flush raises it

    async def _write_batch(self, batch: _Batch) -> None:
        cut = self._cut(batch)
        begun = lease_time()
        try:
            await retry_while_unavailable(partial(self._write, cut), seconds=self._patience)
        except DatabaseUnavailableError as error:
            raise RunUnwritableError(error.message, error.remedy) from error
        self._seq += len(cut.stored)
        self._flushes += 1
        self._proven = begun
        self._broadcast.publish(self.run.id, cut.stored, lease_time() - begun)

    async def _write(self, cut: _Cut) -> None:
        with translated():
            if cut.writes:
                written = await self._write_with_more(cut)
            else:
                written = _is_written(await execute_alone(self._engine, cut.statement, cut.values))
            if not written:  # the connection was given back: whoever ends a run needs no second one
                await self._check_written(cut)

    async def _write_with_more(self, cut: _Cut) -> bool:
        """Write a batch and what belongs to its transaction, or nothing; whether it was written."""
        async with transaction(self._engine) as connection, connection.pipeline():
            row = await (await connection.execute(encoded(cut.statement), cut.values)).fetchone()
            if not _is_written(row):
                return False
            for write in cut.writes:
                await write(connection)
        return True

    def _cut(self, batch: _Batch) -> _Cut:
        stored = [_stored(self._seq + offset, event) for offset, event in enumerate(batch.events, start=1)]
        values: dict[str, Any] = {
            "tenant": self.run.tenant,
            "id": self.run.id,
            "fence": self.run.fence,
            "flushes": self._flushes,
            "count": len(stored),
            "events": Jsonb([{"seq": event.seq, "type": event.type, "data": Fragment(event.json)} for event in stored]),
            "steps": _json([{"id": key, **step.model_dump()} for key, step in batch.steps]),
            "journal": _json([entry.row() for entry in batch.journal]),
            "channel": CHANNEL,
            "notice": notice_of(self.run.id, self._seq + len(stored)),
        }
        clauses = [source() for source in (*batch.sources, *batch.passing)]
        for part in (*clauses, *([batch.transition] if batch.transition else [])):
            values |= part.values
        assignments = batch.transition.assignments if batch.transition else ""
        notify = bool(stored) and self._broadcast.has_remote_listeners
        statement = _statement(assignments, tuple(clause.sql for clause in clauses), notify=notify)
        return _Cut(stored, statement, values, batch.writes)

    async def _check_written(self, cut: _Cut) -> None:
        """A commit whose answer was lost is not repeated: the count of batches tells."""
        if not _is_written(await execute_alone(self._engine, _WAS_WRITTEN, cut.values)):
            raise LeaseLostError(self.run.id, self.run.fence)


def _stored(seq: int, event: AnyEvent) -> StoredEvent:
    data, text = storable_with_json(event.model_dump(mode="json"))
    return StoredEvent(seq, event.type, cast("dict[str, Any]", data), text)


def _json(value: object) -> Jsonb:
    return Jsonb(Fragment(storable_json(value)))


def _is_written(row: tuple[Any, ...] | None) -> bool:
    return row is not None and bool(row[0])


def _same(clause: Clause) -> Clause:
    return clause


@lru_cache(64)
def _statement(assignments: str, clauses: Sequence[str], *, notify: bool) -> str:
    """Return a flush's statement: the same one for the same parts, so that the driver knows it by its identity."""
    fenced = _FENCED_WITH.format(assignments) if assignments else _FENCED
    return fenced + ",\n".join((_FLUSH, *clauses)) + (_NOTIFY if notify else _NOTIFY_NOBODY)
