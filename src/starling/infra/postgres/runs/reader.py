"""Queries over stored runs: event streams, results, steps and journals."""

import asyncio
import math
from collections.abc import AsyncGenerator, Collection, Coroutine, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from sqlalchemy.ext.asyncio import AsyncEngine

from starling.core.background_tasks import ignore_failure
from starling.core.errors import DatabaseUnavailableError
from starling.core.run_document.rows import EventRow
from starling.core.runs import Step
from starling.infra.postgres.engine import execute_autocommit, fetch_autocommit
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.broadcast import Broadcast, Listener
from starling.infra.postgres.runs.writer import JournalEntry

_PAGE_ROWS, _PAGE_BYTES = 500, 2**16  # a page ends with the event that reaches one of them
_POLL_SECONDS = 5.0
_CLOSE_SECONDS = 1.0
_STREAM_ENDS = """
SELECT listened.tenant, listened.id::text, runs.seq, runs.ended_at IS NOT NULL
FROM unnest(%(tenants)s::text[], %(ids)s::uuid[]) AS listened (tenant, id)
LEFT JOIN runs ON runs.tenant = listened.tenant AND runs.id = listened.id"""

# Walks from event to event, so that no more is read than a page holds: the sizes of events differ widely.
_EVENT_PAGE = """
WITH RECURSIVE page (seq, type, data, bytes, rows) AS (
    (SELECT seq, type, data, octet_length(data::text)::bigint, 1 FROM events
     WHERE tenant = %(tenant)s AND run_id = %(id)s AND seq > %(after)s ORDER BY seq LIMIT 1)
    UNION ALL
    SELECT following.seq, following.type, following.data, bytes + octet_length(following.data::text), rows + 1
    FROM page CROSS JOIN LATERAL (
        SELECT seq, type, data FROM events
        WHERE tenant = %(tenant)s AND run_id = %(id)s AND seq > page.seq ORDER BY seq LIMIT 1) AS following
    WHERE bytes < %(most_bytes)s AND rows < %(most_rows)s)
SELECT seq, type, data, bytes < %(most_bytes)s AND rows < %(most_rows)s FROM page ORDER BY seq"""

_END = "SELECT seq, trimmed, ended_at IS NOT NULL FROM runs WHERE tenant = %(tenant)s AND id = %(id)s"
_STEPS = "SELECT type, description, metadata FROM steps WHERE tenant = %(tenant)s AND run_id = %(id)s ORDER BY id"
_JOURNAL = """
SELECT path, kind, position, index, request_hash, data, created_at FROM journal
WHERE tenant = %(tenant)s AND run_id = %(id)s"""
_OWN_CONTEXT = """
SELECT data FROM journal WHERE tenant = %(tenant)s AND run_id = %(id)s
    AND path = '' AND kind = 'context' AND position = 0 AND index = 0"""


@dataclass(frozen=True, slots=True)
class EventPage:
    """Events, oldest first; `last` is True where there were no more of them."""

    events: Sequence[EventRow]
    last: bool


class RunReader:
    """Reads runs, their events and records.

    Events are read through the `streams` pool if it is given, so that streams continue while requests hold all
    connections of `engine`.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        broadcast: Broadcast,
        *,
        streams: AsyncEngine | None = None,
        poll_seconds: float = _POLL_SECONDS,
    ) -> None:
        self._engine = engine
        self._streams = streams or engine
        self._broadcast = broadcast
        self._poll_seconds = poll_seconds
        self._checked_at = -math.inf  # time of the last check, by the loop's clock
        self._queries: set[asyncio.Task[Any]] = set()

    async def close(self) -> None:
        """Wait up to a second for running queries to finish."""
        if self._queries:
            await asyncio.wait(self._queries, timeout=_CLOSE_SECONDS)

    def listener(self, key: RunKey, after: int) -> Listener:
        """Return a listener for a run that does not exist yet: it misses no event, so no query is needed."""
        return self._broadcast.listener(key, after, behind=False)

    async def follow(self, key: RunKey, *, after: int = 0) -> AsyncGenerator[EventRow]:
        """Yield the run's events after `after` as they are written, up to `done`; a `gap` replaces pruned events."""
        async with aclosing(self.batches(key, self._broadcast.listener(key, after))) as batches:
            async for batch in batches:
                for event in batch:
                    yield event

    def follow_batches(self, key: RunKey, *, after: int = 0) -> AsyncGenerator[Sequence[EventRow]]:
        """Yield the events of `follow` in batches of all that are available."""
        return self.batches(key, self._broadcast.listener(key, after))

    async def batches(self, key: RunKey, listener: Listener) -> AsyncGenerator[Sequence[EventRow]]:
        """Yield received and missed events in batches, up to `done`. Retries while Postgres is unavailable."""
        while True:
            if batch := listener.pop_all():
                yield batch
                if batch[-1].type == "done":
                    return
            elif not listener.behind:
                if not await listener.wait(self._poll_seconds):
                    await self._check_listeners()
            elif await self._catch_up(key, listener):
                return

    async def _catch_up(self, key: RunKey, listener: Listener) -> bool:
        """Read the events that the listener missed; return True if the stream has ended."""
        listener.behind, after = False, listener.last  # events received during the query stay buffered
        try:
            page = await self._shielded(self.page(key, after))
            listener.add_page(page.events)
            listener.behind |= not page.last
            return not page.events and await self._shielded(self._ended_by(key, after))
        except DatabaseUnavailableError:
            await listener.wait(self._poll_seconds)
            listener.behind = True
            return False

    async def _check_listeners(self) -> None:
        """Check in one query whether any listener of this process missed a notification."""
        now = asyncio.get_running_loop().time()
        if now - self._checked_at < self._poll_seconds / 2:
            return  # another reader has just checked
        self._checked_at = now
        listeners = tuple(self._broadcast.listeners())
        keys = {listener.key for listener in listeners}
        try:
            found = await self._shielded(self._stream_ends(keys))
        except DatabaseUnavailableError:
            return
        for listener in listeners:
            seq, ended = found[listener.key]
            if ended:
                listener.mark_behind()
            else:
                listener.on_notice(seq)

    async def _shielded[Found](self, query: Coroutine[Any, Any, Found]) -> Found:
        """Finish a query even if its reader is cancelled: a cancelled query would close its connection."""
        task = asyncio.get_running_loop().create_task(query)
        self._queries.add(task)
        task.add_done_callback(self._queries.discard)
        task.add_done_callback(ignore_failure)
        return await asyncio.shield(task)

    async def _stream_ends(self, keys: Collection[RunKey]) -> dict[RunKey, tuple[int, bool]]:
        """Return the last number of each stream, and whether the stream has ended."""
        values = {"tenants": [key.tenant for key in keys], "ids": [key.id for key in keys]}
        rows = await fetch_autocommit(self._streams, _STREAM_ENDS, values)
        return {RunKey(tenant, run): (seq or 0, seq is None or ended) for tenant, run, seq, ended in rows}

    async def events(self, key: RunKey, *, after: int = 0) -> Sequence[EventRow]:
        """Return all events after number `after`, oldest first."""
        found: list[EventRow] = []
        page = EventPage((), last=False)
        while not page.last:
            page = await self.page(key, found[-1].seq if found else after)
            found += page.events
        return found

    async def page(self, key: RunKey, after: int) -> EventPage:
        """Return the next events after number `after`: 64 KiB of JSON text and the rest of its last event, at most."""
        values = {"tenant": key.tenant, "id": key.id, "after": after}
        values |= {"most_bytes": _PAGE_BYTES, "most_rows": _PAGE_ROWS}
        rows = await fetch_autocommit(self._streams, _EVENT_PAGE, values)
        return EventPage([EventRow(*row[:3]) for row in rows], last=not rows or rows[-1][3])

    async def steps(self, key: RunKey) -> Sequence[Step]:
        """Return the run's steps, oldest first."""
        rows = await fetch_autocommit(self._engine, _STEPS, {"tenant": key.tenant, "id": key.id})
        return [Step(type=kind, description=description, metadata=metadata) for kind, description, metadata in rows]

    async def journal(self, key: RunKey) -> Sequence[JournalEntry]:
        """Return the journal entries of the run."""
        rows = await fetch_autocommit(self._engine, _JOURNAL, {"tenant": key.tenant, "id": key.id})
        return [JournalEntry(*row, at=at) for *row, at in rows]

    async def own_context(self, key: RunKey) -> Mapping[str, Any] | None:
        """Return what the journal has of a run itself, None where it has nothing."""
        row = await execute_autocommit(self._engine, _OWN_CONTEXT, {"tenant": key.tenant, "id": key.id})
        return row[0] if row else None

    async def _ended_by(self, key: RunKey, after: int) -> bool:
        """Return whether the run has ended and `after` is at or beyond its last event."""
        row = await execute_autocommit(self._streams, _END, {"tenant": key.tenant, "id": key.id})
        if row is None:
            return True
        seq, trimmed, has_ended = row
        return has_ended and seq <= max(after, trimmed)
