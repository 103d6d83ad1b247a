"""The one writer of a run: everything that lasts goes through here, in fenced batches."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from psycopg.types.json import Jsonb
from sqlalchemy.ext.asyncio import AsyncEngine
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from starling.core.errors import DatabaseUnavailableError, LeaseLostError
from starling.core.events import AnyEvent, StoredEvent
from starling.core.ids import new_id
from starling.core.json import storable, storable_text
from starling.core.runs import Run, RunResult, Step
from starling.infra.postgres.broadcast import NOTIFY, Broadcast, notice_of
from starling.infra.postgres.engine import driver, translated
from starling.infra.postgres.runs import Claim, Connection, RunRepository

type Write = Callable[[Connection], Awaitable[None]]
"""Something else to write in the same transaction; safe to do twice, since a lost batch is written again."""

_LINGER_SECONDS = 0.01
_PATIENCE_SECONDS = 120.0

_log = logging.getLogger(__name__)

_FENCE = """
UPDATE runs SET seq = seq + %(events)s, flushes = flushes + 1
WHERE tenant = %(tenant)s AND id = %(id)s AND fence = %(fence)s AND flushes = %(flushes)s RETURNING 1"""

_WAS_WRITTEN = """
SELECT flushes = %(flushes)s + 1 FROM runs WHERE tenant = %(tenant)s AND id = %(id)s AND fence = %(fence)s"""

_EVENT = """
INSERT INTO events (tenant, run_id, seq, type, data) VALUES (%s, %s, %s, %s, %s)"""

_STEP = """
INSERT INTO steps (tenant, run_id, id, type, description, metadata) VALUES (%s, %s, %s, %s, %s, %s)"""

_JOURNAL = """
INSERT INTO journal (tenant, run_id, path, kind, position, index, request_hash, data)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s)"""

_END = """
UPDATE runs SET status = %(status)s, result = %(result)s, ended_at = now(), lease_until = NULL, worker = NULL
WHERE tenant = %(tenant)s AND id = %(id)s"""


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One thing that a resumed run must not ask or do again."""

    path: str
    kind: str
    position: int
    index: int
    request_hash: str
    data: Mapping[str, Any]


@dataclass(slots=True)
class _Batch:
    events: list[AnyEvent] = field(default_factory=list["AnyEvent"])
    steps: list[tuple[str, Step]] = field(default_factory=list[tuple[str, Step]])
    journal: list[JournalEntry] = field(default_factory=list[JournalEntry])
    writes: list[Write] = field(default_factory=list[Write])

    @property
    def empty(self) -> bool:
        return not (self.events or self.steps or self.journal or self.writes)


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

    def emit(self, event: AnyEvent) -> None:
        """Add an event to the run's stream."""
        self._pending.events.append(event)
        self._flush_soon()

    def step(self, step: Step) -> None:
        """Add an entry to the run's record; it goes with the next batch."""
        self._pending.steps.append((new_id(), step))

    def record(self, entry: JournalEntry) -> None:
        """Add to the journal; it goes with the next batch, together with what is emitted beside it."""
        self._pending.journal.append(entry)

    def add(self, write: Write) -> None:
        """Add a write of another kind to the next batch."""
        self._pending.writes.append(write)

    async def flush(self) -> None:
        """Make everything that was collected so far durable. A write that has begun outlives its cancelled caller.

        Raises LeaseLostError, or DatabaseUnavailableError when Postgres stayed away for too long.
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
                await self._write_patiently(batch)
            except Exception as error:
                self._broken = error
                raise

    def drop_unwritable(self) -> None:
        """Go on without a batch that Postgres refused for what was in it, so that the run's failure can be written."""
        if not isinstance(self._broken, (LeaseLostError, DatabaseUnavailableError)):
            self._broken = None

    async def end(self, result: RunResult, last: AnyEvent, repository: RunRepository) -> None:
        """End the run: its last event, its result and the admission of the next run in one transaction."""

        async def finish(connection: Connection) -> None:
            values = {
                "tenant": self.run.tenant,
                "id": self.run.id,
                "status": result.status,
                "result": Jsonb(storable(result.model_dump(mode="json"))),
            }
            await connection.execute(_END, values)
            await repository.admit(connection, self.run.tenant)

        self._pending.events.append(last)
        self._pending.writes.append(finish)
        await self.flush()

    async def close(self) -> None:
        """Stop what is still being written; what was only collected is dropped."""
        unfinished = [task for task in (self._later, *self._writing) if task and not task.done()]
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)

    def _flush_soon(self) -> None:
        if self._later is None or self._later.done():
            self._later = asyncio.get_running_loop().create_task(self._linger(), name=f"flush-{self.run.id}")

    async def _linger(self) -> None:
        try:
            while self._pending.events:  # some may come while others are being written
                await asyncio.sleep(_LINGER_SECONDS)
                await self.flush()
        except (LeaseLostError, DatabaseUnavailableError) as error:
            _log.warning("run %s can't be written: %s", self.run.id, error)  # the next flush raises it

    async def _write_patiently(self, batch: _Batch) -> None:
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(DatabaseUnavailableError),
            stop=stop_after_delay(self._patience),
            wait=wait_random_exponential(multiplier=0.1, max=2.0),
            reraise=True,
        )
        stored = [
            StoredEvent(self._seq + offset, event.type, cast("dict[str, Any]", storable(event.model_dump(mode="json"))))
            for offset, event in enumerate(batch.events, start=1)
        ]
        async for attempt in retrying:
            with attempt:
                await self._write(batch, stored)
        self._seq += len(batch.events)
        self._flushes += 1
        self._broadcast.publish(self.run.id, stored)

    async def _write(self, batch: _Batch, stored: Sequence[StoredEvent]) -> None:
        mark = {
            "tenant": self.run.tenant,
            "id": self.run.id,
            "fence": self.run.fence,
            "flushes": self._flushes,
            "events": len(batch.events),
        }
        with translated():
            async with self._engine.begin() as transaction:
                connection = await driver(transaction)
                async with connection.pipeline():
                    fenced = await connection.execute(_FENCE, mark)
                    if await fenced.fetchone() is None:
                        await self._check_written(connection, mark)
                    else:
                        await self._insert(connection, batch, stored)

    async def _insert(self, connection: Connection, batch: _Batch, stored: Sequence[StoredEvent]) -> None:
        run = (self.run.tenant, self.run.id)
        async with connection.cursor() as cursor:
            if stored:
                rows = [(*run, event.seq, event.type, Jsonb(event.data)) for event in stored]
                await cursor.executemany(_EVENT, rows)
                await cursor.execute(NOTIFY, (notice_of(self.run.id, stored[-1].seq),))
            if batch.steps:
                await cursor.executemany(
                    _STEP,
                    [
                        (*run, key, step.type, storable_text(step.description), Jsonb(storable(step.metadata)))
                        for key, step in batch.steps
                    ],
                )
            if batch.journal:
                await cursor.executemany(_JOURNAL, [(*run, *_columns(entry)) for entry in batch.journal])
        for write in batch.writes:
            await write(connection)

    async def _check_written(self, connection: Connection, mark: Mapping[str, Any]) -> None:
        """A commit whose answer was lost is not repeated: the count of batches tells."""
        row = await (await connection.execute(_WAS_WRITTEN, mark)).fetchone()
        if row is None or not row[0]:
            raise LeaseLostError(self.run.id, self.run.fence)


def _columns(entry: JournalEntry) -> tuple[Any, ...]:
    return entry.path, entry.kind, entry.position, entry.index, entry.request_hash, Jsonb(storable(entry.data))
