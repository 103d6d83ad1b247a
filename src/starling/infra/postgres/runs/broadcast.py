"""Delivery of new events to readers: directly within a process, by NOTIFY between processes."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from contextvars import Context
from typing import Final
from weakref import WeakSet, finalize

import psycopg

from starling.core.errors import DatabaseUnavailableError
from starling.core.events.run_events import Gap
from starling.core.run_document.rows import EventRow
from starling.infra.postgres.engine import Engine, execute_autocommit
from starling.infra.postgres.notifications import NotificationHub
from starling.infra.postgres.runs.acceptance import RunKey

CHANNEL = "starling_runs"
SEND_NOTICES: Final = f"""
SELECT set_config('synchronous_commit', 'off', true), count(pg_notify('{CHANNEL}', notice))
FROM unnest(%(notices)s::text[]) AS notice"""  # noqa: S608 - our own text

_BUFFER_EVENTS, _BUFFER_BYTES = 5_000, 2**18  # of one reader; what is beyond is read from the database later
_CLOSE_SECONDS = 1.0

_log = logging.getLogger(__name__)


class NoticeSender:
    """Notifies other processes of events that were committed, for all runs of this process together.

    Postgres makes commits that notify one after another, for a whole server. So events are committed without, and
    notices in transactions of their own that don't wait for the disk; what is written during one is sent with the next.
    A notice may be lost: readers poll as well.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._pending: dict[str, int] = {}  # the last event of each run
        self._sending: asyncio.Task[None] | None = None

    def add(self, run_id: str, seq: int) -> None:
        """Notify others that the last event of a run is `seq`."""
        self._pending[run_id] = seq
        if self._sending is None or self._sending.done():
            self._sending = asyncio.get_running_loop().create_task(
                self._send(),
                name="send-notices",
                context=Context(),  # not the time limits or the span of who came first
            )

    async def close(self) -> None:
        """Wait up to a second until all notices are sent."""
        if self._sending is not None:
            await asyncio.wait([self._sending], timeout=_CLOSE_SECONDS)
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)

    async def _send(self) -> None:
        while self._pending:
            notices = [f"{run_id}:{seq}" for run_id, seq in self._pending.items()]
            self._pending.clear()
            try:
                await execute_autocommit(self._engine, SEND_NOTICES, {"notices": notices})
            except DatabaseUnavailableError:
                continue
            except psycopg.Error as error:
                _log.warning("readers in other processes are not notified of new events: %s", error)


class Listener:
    """Buffers, in order, the events of one run for one reader.

    `behind` is True if the database may have events that were not received here.
    """

    def __init__(self, key: RunKey, after: int, *, behind: bool) -> None:
        self.key = key
        self.behind = behind
        self.last = after  # the number of the last event that was received
        self._buffer: list[EventRow] = []
        self._bytes = 0  # of the buffered events that this process wrote
        self._changed = asyncio.Event()

    def add(self, events: Iterable[EventRow]) -> None:
        """Buffer new events; skip known ones, and set `behind` for those after a gap."""
        for event in events:
            if event.seq == self.last + 1 and self._has_room:
                self._buffer.append(event)
                self._bytes += len(event.json)
                self.last = event.seq
            elif event.seq > self.last:
                self.behind = True
        self._changed.set()

    def add_page(self, page: Iterable[EventRow]) -> None:
        """Buffer a page read from the database; numbers missing there were pruned and become a `gap` event."""
        for event in page:
            if event.seq > self.last + 1 and self._has_room:
                gap = Gap.model_validate({"from": self.last + 1, "to": event.seq - 1})
                self._buffer.append(EventRow(gap.last, gap.type, gap.model_dump()))
                self.last = gap.last
            self.add([event])

    def on_notice(self, seq: int) -> None:
        """Set `behind` if the stream has events up to `seq` that were not received."""
        if seq > self.last:
            self.mark_behind()

    def mark_behind(self) -> None:
        """Set `behind` and wake the reader."""
        self.behind = True
        self._changed.set()

    @property
    def _has_room(self) -> bool:
        return len(self._buffer) < _BUFFER_EVENTS and self._bytes < _BUFFER_BYTES

    def pop_all(self) -> list[EventRow]:
        """Return the buffered events and empty the buffer."""
        popped, self._buffer, self._bytes = self._buffer, [], 0
        return popped

    async def wait(self, seconds: float) -> bool:
        """Wait for a change; return False after `seconds` without one."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return False
        self._changed.clear()
        return True


type Observer = Callable[[str, Sequence[EventRow], float], None]
"""Called after each flush of this process with the run id, its new events and the seconds that the flush took."""


class Broadcast:
    """Delivers events to the listeners of each run. Listeners are held by weak references.

    Without `notices`, other processes are not notified: their readers poll.
    """

    def __init__(self, hub: NotificationHub | None = None, notices: NoticeSender | None = None) -> None:
        self.observers: list[Observer] = []
        self._hub = hub
        self._notices = notices
        self._listeners: defaultdict[str, WeakSet[Listener]] = defaultdict(WeakSet)

    def listener(self, key: RunKey, after: int, *, behind: bool = True) -> Listener:
        """Return a new listener for the events after number `after`."""
        listener = Listener(key, after, behind=behind)
        self._listeners[key.id].add(listener)
        finalize(listener, self._found, key.id).atexit = False
        return listener

    def listeners(self) -> Iterable[Listener]:
        """Return all listeners of this process."""
        for run_id in tuple(self._listeners):
            yield from self._found(run_id)

    def publish(self, run_id: str, events: Sequence[EventRow], seconds: float = 0.0) -> None:
        """Pass committed events on; the flush took `seconds`.

        They go to the listeners and observers of this process, and a notice to others that may listen.
        """
        for listener in self._found(run_id):
            listener.add(events)
        for observe in self.observers:
            observe(run_id, events, seconds)
        if events and self._notices is not None and (self._hub is None or self._hub.has_peers):
            self._notices.add(run_id, events[-1].seq)

    def subscribed(self, hub: NotificationHub) -> AbstractContextManager[None]:
        """Receive notifications of other processes through `hub` while the context lasts."""
        return hub.subscribed(CHANNEL, self._on_notice, self._on_listening)

    def _on_notice(self, notice: str) -> None:
        """Wake the readers that lack events of a run; those that this process wrote have them already."""
        run_id, _, seq = notice.partition(":")
        for listener in self._found(run_id):
            listener.on_notice(int(seq))

    def _on_listening(self) -> None:
        for listener in self.listeners():
            listener.mark_behind()

    def _found(self, run_id: str) -> Iterable[Listener]:
        found = tuple(self._listeners.get(run_id, ()))
        if not found:
            self._listeners.pop(run_id, None)
        return found
