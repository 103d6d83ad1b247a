"""Reading what runs wrote: streams of events, results, steps and journals."""

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, Collection, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.core.errors import DatabaseUnavailableError, NotFoundError
from starling.core.events import StoredEvent
from starling.core.runs import RunResult, RunStatus, Step
from starling.infra.postgres.engine import translated
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.broadcast import Broadcast, Listener
from starling.infra.postgres.runs.writer import JournalEntry
from starling.infra.postgres.tables import events, journal, runs, steps

_PAGE = 500
_POLL_SECONDS = 5.0
_CLOSE_SECONDS = 1.0
_LOOK = text("""
SELECT listened.tenant, listened.id::text, runs.seq, runs.ended_at IS NOT NULL
FROM unnest(CAST(:tenants AS text[]), CAST(:ids AS uuid[])) AS listened (tenant, id)
LEFT JOIN runs ON runs.tenant = listened.tenant AND runs.id = listened.id""")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run as a caller may see it; `result` is None until it has ended."""

    id: str
    thread_id: str
    trace_id: str
    epoch: int
    correlation_id: str
    status: RunStatus
    result: RunResult | None


class RunReader:
    """What any process can read of any run of a tenant.

    Events are read over the connections of `streams`, where they are given: streams go on while requests hold all
    those of `engine`.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        broadcast: Broadcast,
        *,
        streams: AsyncEngine | None = None,
        poll_seconds: float = _POLL_SECONDS,
    ) -> None:
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")  # a read needs no BEGIN
        self._streams = (streams or engine).execution_options(isolation_level="AUTOCOMMIT")
        self._broadcast = broadcast
        self._poll = poll_seconds
        self._looked = -math.inf  # when, in seconds of the loop
        self._asking: set[asyncio.Task[Any]] = set()

    async def close(self) -> None:
        """Let what is being asked come to its end, but not for long."""
        if self._asking:
            await asyncio.wait(self._asking, timeout=_CLOSE_SECONDS)

    def listener(self, key: RunKey, after: int) -> Listener:
        """Return a listener for a run that doesn't exist yet: it hears everything, so nothing has to be looked up."""
        return self._broadcast.listener(key, after, behind=False)

    async def follow(self, key: RunKey, *, after: int = 0) -> AsyncGenerator[StoredEvent]:
        """Yield the run's events from `after` on, as they come, up to `done`; a `gap` for those no longer kept."""
        async with aclosing(self.batches(key, self._broadcast.listener(key, after))) as batches:
            async for batch in batches:
                for event in batch:
                    yield event

    def following(self, key: RunKey, *, after: int = 0) -> AsyncGenerator[Sequence[StoredEvent]]:
        """Yield what `follow` yields, each time all that is there."""
        return self.batches(key, self._broadcast.listener(key, after))

    async def batches(self, key: RunKey, heard: Listener) -> AsyncGenerator[Sequence[StoredEvent]]:
        """Yield what a listener hears and what it missed, up to `done`. A Postgres that is away is waited for."""
        while True:
            if batch := heard.take():
                yield batch
                if batch[-1].type == "done":
                    return
            elif not heard.behind:
                if not await heard.wait(self._poll):
                    await self._look()
            elif await self._catch_up(key, heard):
                return

    async def _catch_up(self, key: RunKey, heard: Listener) -> bool:
        """Read what the listener missed; whether there will never be more."""
        heard.behind, after = False, heard.last  # more may be heard meanwhile: that isn't passed on yet
        try:
            page = await self._apart(self.events(key, after=after))
            heard.read(page)
            heard.behind |= len(page) == _PAGE
            return not page and await self._apart(self._ended_by(key, after))
        except DatabaseUnavailableError as error:
            _log.info("a reader of run %s waits: %s", key.id, error)
            await heard.wait(self._poll)
            heard.behind = True
            return False

    async def _look(self) -> None:
        """Ask the database once for all listeners of this process what the bell may not have told them."""
        now = asyncio.get_running_loop().time()
        if now - self._looked < self._poll / 2:
            return  # another reader has just asked
        self._looked = now
        listeners = tuple(self._broadcast.listeners())
        keys = {listener.key for listener in listeners}
        try:
            found = await self._apart(self._ends(keys))
        except DatabaseUnavailableError as error:
            _log.warning("readers can't be told what they missed: %s", error)
            return
        for listener in listeners:
            seq, ended = found[listener.key]
            if ended:
                listener.look_again()
            else:
                listener.hear_of(seq)

    async def _apart[Found](self, query: Coroutine[Any, Any, Found]) -> Found:
        """Let a query come to its end although its reader goes away: broken off, it would take its connection along."""
        asking = asyncio.get_running_loop().create_task(query)
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)
        return await asyncio.shield(asking)

    async def _ends(self, keys: Collection[RunKey]) -> dict[RunKey, tuple[int, bool]]:
        """Return the last number of each stream, and whether nothing can follow it."""
        values = {"tenants": [key.tenant for key in keys], "ids": [key.id for key in keys]}
        with translated():
            async with self._streams.connect() as connection:
                rows = await connection.execute(_LOOK, values)
                return {RunKey(row[0], row[1]): (row[2] or 0, row[2] is None or row[3]) for row in rows}

    async def events(self, key: RunKey, *, after: int = 0) -> Sequence[StoredEvent]:
        """Return up to 500 events that follow number `after`."""
        query = (
            select(events.c.seq, events.c.type, events.c.data)
            .where(events.c.tenant == key.tenant, events.c.run_id == key.id, events.c.seq > after)
            .order_by(events.c.seq)
            .limit(_PAGE)
        )
        with translated():
            async with self._streams.connect() as connection:
                return [StoredEvent(*row) for row in await connection.execute(query)]

    async def latest(self, key: RunKey, kind: str) -> StoredEvent | None:
        """Return the last event of a type, None where there is none or it isn't kept any more."""
        query = (
            select(events.c.seq, events.c.type, events.c.data)
            .where(events.c.tenant == key.tenant, events.c.run_id == key.id, events.c.type == kind)
            .order_by(events.c.seq.desc())
            .limit(1)
        )
        with translated():
            async with self._engine.connect() as connection:
                row = (await connection.execute(query)).one_or_none()
        return StoredEvent(*row) if row else None

    async def record(self, key: RunKey) -> RunRecord:
        """Return the run. Raises NotFoundError, for another tenant's as well."""
        query = select(
            runs.c.id,
            runs.c.thread_id,
            runs.c.trace_id,
            runs.c.epoch,
            runs.c.correlation_id,
            runs.c.status,
            runs.c.result,
        ).where(runs.c.tenant == key.tenant, runs.c.id == key.id)
        with translated():
            async with self._engine.connect() as connection:
                row = (await connection.execute(query)).one_or_none()
        if row is None:
            raise NotFoundError("run", key.id)
        result = None if row.result is None else RunResult.model_validate(row.result)
        return RunRecord(*row[:5], status=RunStatus(row.status), result=result)

    async def steps(self, key: RunKey) -> Sequence[Step]:
        """Return the run's record, oldest entry first."""
        query = (
            select(steps.c.type, steps.c.description, steps.c.metadata)
            .where(steps.c.tenant == key.tenant, steps.c.run_id == key.id)
            .order_by(steps.c.id)
        )
        with translated():
            async with self._engine.connect() as connection:
                rows = await connection.execute(query)
                return [Step(type=row.type, description=row.description, metadata=row.metadata) for row in rows]

    async def journal(self, key: RunKey) -> Sequence[JournalEntry]:
        """Return everything that the run recorded so far."""
        columns = (
            journal.c.path,
            journal.c.kind,
            journal.c.position,
            journal.c.index,
            journal.c.request_hash,
            journal.c.data,
        )
        query = select(*columns).where(journal.c.tenant == key.tenant, journal.c.run_id == key.id)
        with translated():
            async with self._engine.connect() as connection:
                return [JournalEntry(*row) for row in await connection.execute(query)]

    async def _ended_by(self, key: RunKey, after: int) -> bool:
        """Whether the run is over and `after` is at or beyond its last event."""
        columns = (runs.c.seq, runs.c.trimmed, runs.c.ended_at)
        query = select(*columns).where(runs.c.tenant == key.tenant, runs.c.id == key.id)
        with translated():
            async with self._streams.connect() as connection:
                row = (await connection.execute(query)).one_or_none()
        return row is None or (row.ended_at is not None and row.seq <= max(after, row.trimmed))
