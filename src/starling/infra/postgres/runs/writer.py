"""The writer of a run: events, steps and journal entries are stored in fenced batches."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache, partial
from typing import Any, cast

from orjson import Fragment
from psycopg.types.json import Jsonb
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.core.background_tasks import ignore_failure
from starling.core.clock import lease_time
from starling.core.conversation.turn import STATE_CHARS
from starling.core.errors import DatabaseUnavailableError, LeaseLostError, RunUnwritableError
from starling.core.events.stream import AnyEvent
from starling.core.ids import new_id
from starling.core.json import Json
from starling.core.run_document.builder import RunDocumentBuilder
from starling.core.run_document.document import RunDocument
from starling.core.run_document.rows import EventRow, RunRow
from starling.core.runs import Run, RunResult, RunStatus, Step
from starling.core.secrets.look_alikes import mask_keys, mask_keys_in, may_have_keys
from starling.infra.fast_json import storable_json, storable_with_json
from starling.infra.postgres.audit import INSERT_RUN_AUDIT_EVENT, run_event_values
from starling.infra.postgres.availability import retry_while_unavailable
from starling.infra.postgres.engine import encoded, execute_autocommit, pipelined_transaction
from starling.infra.postgres.runs.acceptance import Claim, Connection, RunRepository
from starling.infra.postgres.runs.broadcast import Broadcast

type Write = Callable[[Connection], Awaitable[None]]
"""A further write in the transaction of a flush, after its statement."""


@dataclass(frozen=True, slots=True)
class Clause:
    """CTEs added to a flush's statement, with their values; they write only if `fenced` has a row.

    Any clauses of a run may meet in one statement, so names of CTEs and values are unique among all of them.
    """

    sql: str
    values: Mapping[str, Any]


type ClauseSource = Callable[[], Clause]
"""Returns a clause when its batch is prepared; called once per batch, even if the write is retried."""


@dataclass(frozen=True, slots=True)
class DocumentClause:
    """A clause made of the run's document with the events of its batch; `read` reads what is stored of it."""

    read: Callable[[Run], Awaitable[RunDocumentBuilder]]
    clause: Callable[[RunDocument], Clause]


_FLUSH_DELAY_SECONDS = 0.02
_RETRY_SECONDS = 120.0
_CLOSE_SECONDS = 1.0


# One statement: if the fence has changed, it writes nothing.
_FENCED = """
WITH fenced AS (
    UPDATE runs SET seq = seq + %(count)s, flushes = flushes + 1
    WHERE tenant = %(tenant)s AND id = %(id)s AND fence = %(fence)s AND flushes = %(flushes)s
    RETURNING tenant, id)"""
_FENCED_WITH = """
WITH fenced AS (
    UPDATE runs SET {}, seq = seq + %(count)s, flushes = flushes + 1
    WHERE tenant = %(tenant)s AND id = %(id)s AND fence = %(fence)s AND flushes = %(flushes)s
    RETURNING *)"""
_STREAMED = """
streamed AS (
    INSERT INTO events (tenant, run_id, seq, type, data)
    SELECT fenced.tenant, fenced.id, item.seq, item.type, item.data
    FROM fenced, jsonb_to_recordset(%(events)s) AS item (seq bigint, type text, data jsonb))"""
_STEPPED = """
stepped AS (
    INSERT INTO steps (tenant, run_id, id, type, description, metadata)
    SELECT fenced.tenant, fenced.id, item.id, item.type, item.description, item.metadata
    FROM fenced, jsonb_to_recordset(%(steps)s) AS item (id uuid, type text, description text, metadata jsonb))"""
_JOURNALLED = """
journalled AS (
    INSERT INTO journal (tenant, run_id, path, kind, position, index, request_hash, data)
    SELECT fenced.tenant, fenced.id, item.path, item.kind, item.position, item.index, item.request_hash, item.data
    FROM fenced, jsonb_to_recordset(%(journal)s)
    AS item (path text, kind text, position int, index int, request_hash text, data jsonb))"""
_ROWS = (_STREAMED, _STEPPED, _JOURNALLED)  # each only where there are such rows
_COUNTED = """
SELECT count(*) FROM fenced"""

_WAS_WRITTEN = """
SELECT flushes = %(flushes)s + 1 FROM runs WHERE tenant = %(tenant)s AND id = %(id)s AND fence = %(fence)s"""

_ENDED = "status = %(status)s, result = %(result)s, ended_at = now(), lease_until = NULL, worker = NULL"
_WAITS = "status = 'waiting', admitted_at = NULL, lease_until = NULL, worker = NULL"
_OUTBOX_EVENT = f"written AS (SELECT * FROM fenced),\nreported AS ({INSERT_RUN_AUDIT_EVENT})"  # noqa: S608 - our own text


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """A recorded answer or effect that a resumed run must not repeat. `at` is when it was stored, None before."""

    path: str
    kind: str
    position: int
    index: int
    request_hash: str
    data: Mapping[str, Any]
    at: datetime | None = field(default=None, kw_only=True, compare=False)

    def row(self) -> dict[str, Any]:
        """Return the entry as JSON."""
        return {name: getattr(self, name) for name in self.__match_args__}


@dataclass(slots=True)
class _Batch:
    events: list[AnyEvent] = field(default_factory=list["AnyEvent"])
    steps: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    journal: list[JournalEntry] = field(default_factory=list[JournalEntry])
    sources: list[ClauseSource] = field(default_factory=list["ClauseSource"])
    dropped_at_end: list[ClauseSource] = field(default_factory=list["ClauseSource"])
    assignments: str = ""  # added to the UPDATE of the run row: `fenced` then returns the whole row
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])  # of the assignments
    writes: Sequence[Write] = ()
    of_document: DocumentClause | None = None

    @property
    def empty(self) -> bool:
        return self == _Batch()


@dataclass(frozen=True, slots=True)
class _PreparedBatch:
    """A batch with its statement and values, the same for each attempt to write it."""

    stored: Sequence[EventRow]
    statement: str
    values: Mapping[str, Any]
    writes: Sequence[Write]


class RunWriter:
    """Collects the writes of a run and flushes them under the run's fence.

    `emit`, `step`, `record` and `add` only collect: their arguments become durable together, within a few
    milliseconds or at the next `flush`. After LeaseLostError nothing more is written.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        claim: Claim,
        broadcast: Broadcast,
        *,
        retry_seconds: float = _RETRY_SECONDS,
        span_id: Callable[[], str] = str,
    ) -> None:
        self.run: Run = claim.run
        self._engine = engine
        self._broadcast = broadcast
        self._retry_seconds = retry_seconds
        self._span_id = span_id  # of the span in which a step was made; empty where nothing is traced
        self._seq = claim.seq
        self._flushes = claim.flushes
        self._pending = _Batch()
        self._write_lock = asyncio.Lock()
        self._broken: Exception | None = None
        # None where the document has to be read first: it has what this writer didn't write: events, answers of a fork.
        self._document = _document_of(claim.run) if claim.seq <= 1 and claim.run.forked_from is None else None
        self._delayed_flush: asyncio.Task[None] | None = None
        self._writing: set[asyncio.Task[None]] = set()
        self._begun = self._confirmed_at = lease_time()

    def emit(self, event: AnyEvent) -> None:
        """Add an event to the run's stream."""
        self._pending.events.append(event)
        self.flush_soon()

    def step(self, step: Step) -> None:
        """Add a step to the next batch, with the span that it was made in."""
        row: dict[str, Any] = {"id": new_id(), **step.model_dump()}
        if span_id := self._span_id():
            row["metadata"]["span_id"] = span_id
        self._pending.steps.append(row)

    def record(self, entry: JournalEntry) -> None:
        """Add a journal entry to the next batch, together with the events emitted before the flush."""
        self._pending.journal.append(entry)

    def add(self, source: ClauseSource, *, until_end: bool = False) -> None:
        """Add another clause to the next batch; with `until_end` it is dropped if that batch ends the run."""
        (self._pending.dropped_at_end if until_end else self._pending.sources).append(source)

    @property
    def has_pending_records(self) -> bool:
        """Whether events, steps or journal entries wait for the next batch or are being written."""
        streamed = self._pending.events or self._pending.steps or self._pending.journal
        return bool(streamed) or self._write_lock.locked()

    @property
    def proven_seconds(self) -> float:
        """Seconds since the start of the last write that succeeded under the run's fence."""
        return lease_time() - self._confirmed_at

    def flush_soon(self) -> None:
        """Schedule a flush in a few milliseconds, unless one is scheduled."""
        if self._delayed_flush is None or self._delayed_flush.done():
            self._delayed_flush = asyncio.get_running_loop().create_task(
                self._flush_until_empty(), name=f"flush-{self.run.id}"
            )

    async def flush(self) -> None:
        """Write everything collected so far. Cancelling the caller does not cancel a write that has begun.

        Raises LeaseLostError, or RunUnwritableError if Postgres stays unavailable for `retry_seconds`.
        """
        writing = asyncio.get_running_loop().create_task(self._flush(), name=f"write-{self.run.id}")
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)
        writing.add_done_callback(ignore_failure)
        await asyncio.shield(writing)

    async def _flush(self) -> None:
        async with self._write_lock:
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
        """Discard a batch that Postgres rejected for its content, so that the run's failure can be written."""
        if not isinstance(self._broken, (LeaseLostError, DatabaseUnavailableError)):
            self._broken = self._document = None

    async def end(
        self,
        result: RunResult,
        last: AnyEvent,
        repository: RunRepository,
        also: Sequence[Clause] = (),
        of_document: DocumentClause | None = None,
    ) -> None:
        """End the run: write its last event, its result and `also`, and admit the next run, in one transaction."""
        stored = _json(result.model_dump(mode="json"))
        self._pending.events.append(last)
        self._pending.dropped_at_end.clear()
        clauses = (*also, Clause(_OUTBOX_EVENT, run_event_values()))
        self._pending.sources += [lambda clause=clause: clause for clause in clauses]
        self._pending.of_document = of_document
        self._pending.assignments, self._pending.values = _ENDED, {"status": result.status, "result": stored}
        self._pending.writes = [partial(repository.admit, tenant=self.run.tenant)]
        await self.flush()

    async def suspend(self, wake: Write) -> None:
        """Write what was collected and set the run to `waiting`: without a worker, and not counted in its tenant's cap.

        `wake` runs in the same transaction and queues the run again if it need not wait any more.
        """
        self._pending.assignments = _WAITS
        self._pending.writes = [wake]
        await self.flush()

    async def close(self) -> None:
        """Wait up to a second for running writes, then cancel them; drop what was only collected."""
        tasks = [task for task in (self._delayed_flush, *self._writing) if task]
        if self._delayed_flush:
            self._delayed_flush.cancel()
        if self._writing:
            await asyncio.wait(self._writing, timeout=_CLOSE_SECONDS)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _flush_until_empty(self) -> None:
        with suppress(LeaseLostError, DatabaseUnavailableError):  # the next flush raises the error
            while not self._pending.empty:  # more may be collected during a write
                await asyncio.sleep(_FLUSH_DELAY_SECONDS)
                await self.flush()

    async def _write_batch(self, batch: _Batch) -> None:
        try:
            if batch.of_document and self._document is None:
                read = partial(batch.of_document.read, self.run)
                self._document = await retry_while_unavailable(read, seconds=self._retry_seconds)
            prepared = self._prepare(batch)
            begun = lease_time()
            await retry_while_unavailable(partial(self._write, prepared), seconds=self._retry_seconds)
        except DatabaseUnavailableError as error:
            raise RunUnwritableError(error.message, error.remedy) from error
        self._seq += len(prepared.stored)
        self._flushes += 1
        self._confirmed_at = begun
        self._broadcast.publish(self.run.id, prepared.stored, lease_time() - begun)

    async def _write(self, prepared: _PreparedBatch) -> None:
        if prepared.writes:  # in one transaction, and only if the fence accepts the batch
            async with pipelined_transaction(self._engine) as connection:
                row = await (await connection.execute(encoded(prepared.statement), prepared.values)).fetchone()
                for write in prepared.writes if _is_written(row) else ():
                    await write(connection)
        else:
            row = await execute_autocommit(self._engine, prepared.statement, prepared.values)
        # The connection was returned before, so ending a run never holds two. An earlier attempt may have committed
        # the batch, as the flush counter shows.
        if not _is_written(row) and not _is_written(
            await execute_autocommit(self._engine, _WAS_WRITTEN, prepared.values)
        ):
            raise LeaseLostError(self.run.id, self.run.fence)

    def _prepare(self, batch: _Batch) -> _PreparedBatch:
        stored = [_stored(self._seq + offset, event) for offset, event in enumerate(batch.events, start=1)]
        if self._document:
            at = self.run.claimed_at + timedelta(seconds=lease_time() - self._begun)
            for event in stored:
                self._document.take(event, at)
        values: dict[str, Any] = {
            "tenant": self.run.tenant,
            "id": self.run.id,
            "fence": self.run.fence,
            "flushes": self._flushes,
            "count": len(stored),
            "events": Jsonb([{"seq": event.seq, "type": event.type, "data": Fragment(event.json)} for event in stored]),
            "steps": Jsonb(Fragment(_masked(batch.steps)[1])),
            "journal": _json([entry.row() for entry in batch.journal]),
        }
        rows = [sql for sql, given in zip(_ROWS, (stored, batch.steps, batch.journal), strict=True) if given]
        clauses = [source() for source in (*batch.sources, *batch.dropped_at_end)]
        if batch.of_document and self._document:
            clauses.append(batch.of_document.clause(self._document.document()))
        for added in (batch.values, *(clause.values for clause in clauses)):
            values |= added
        statement = _statement(batch.assignments, (*rows, *(clause.sql for clause in clauses)))
        return _PreparedBatch(stored, statement, values, batch.writes)


def _document_of(run: Run) -> RunDocumentBuilder:
    builder, ids = RunDocumentBuilder(STATE_CHARS), (run.id, run.thread_id, run.trace_id, run.correlation_id)
    begun = RunRow(*ids, run.epoch, RunStatus.RUNNING, mask_keys(run.input), {}, created_at=run.claimed_at)
    builder.take(begun, run.claimed_at)
    return builder


def _stored(seq: int, event: AnyEvent) -> EventRow:
    data, text = _masked(event.model_dump(mode="json"))
    return EventRow(seq, event.type, cast("dict[str, Any]", data), text)


def _masked(value: Json) -> tuple[Json, bytes]:
    """Return a storable value without what looks like a key, and its JSON."""
    kept, text = storable_with_json(value)
    return storable_with_json(mask_keys_in(kept)) if may_have_keys(text.decode()) else (kept, text)


def _json(value: object) -> Jsonb:
    return Jsonb(Fragment(storable_json(value)))


def _is_written(row: tuple[Any, ...] | None) -> bool:
    return row is not None and bool(row[0])


@lru_cache(64)
def _statement(assignments: str, clauses: Sequence[str]) -> str:
    """Return a flush's statement: the same object for the same parts, and short, so that the driver caches it."""
    fenced = _FENCED_WITH.format(assignments) if assignments else _FENCED
    return " ".join(f"{', '.join((fenced, *clauses))} {_COUNTED}".split())
