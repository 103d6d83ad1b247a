"""Telling readers what was written: directly within a process, by NOTIFY between processes."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Sequence
from contextlib import asynccontextmanager, contextmanager
from weakref import WeakSet, finalize

from starling.core.events import Gap, StoredEvent
from starling.infra.postgres.notifications import NotificationHub, open_hub
from starling.infra.postgres.runs.acceptance import RunKey

CHANNEL = "starling_runs"

_MOST_HELD = 5_000


def notice_of(run_id: str, seq: int) -> str:
    """Return the payload that says that a run's stream has grown up to number `seq`."""
    return f"{run_id}:{seq}"


class Listener:
    """What one reader has heard of a run's stream and not read yet, in order.

    `behind` says that there may be more in the database than was heard.
    """

    def __init__(self, key: RunKey, after: int, *, behind: bool) -> None:
        self.key = key
        self.behind = behind
        self._last = after
        self._held: list[StoredEvent] = []
        self._bell = asyncio.Event()

    @property
    def last(self) -> int:
        """The number of the last event that was heard."""
        return self._last

    def hear(self, events: Iterable[StoredEvent]) -> None:
        """Take in events; known ones are passed over, and those after a gap have to be read again."""
        for event in events:
            if event.seq == self._last + 1 and len(self._held) < _MOST_HELD:
                self._held.append(event)
                self._last = event.seq
            elif event.seq > self._last:
                self.behind = True
        self._bell.set()

    def read(self, page: Iterable[StoredEvent]) -> None:
        """Take in what was read from the database: numbers that are missing there are no longer kept."""
        for event in page:
            if event.seq > self._last + 1 and len(self._held) < _MOST_HELD:
                gap = Gap.model_validate({"from": self._last + 1, "to": event.seq - 1})
                self._held.append(StoredEvent(gap.last, gap.type, gap.model_dump()))
                self._last = gap.last
            self.hear([event])

    def hear_of(self, seq: int) -> None:
        """Learn that the stream has grown up to `seq`."""
        if seq > self._last:
            self.look_again()

    def look_again(self) -> None:
        """Have the database asked, whatever was heard."""
        self.behind = True
        self._bell.set()

    def take(self) -> list[StoredEvent]:
        """Return what was heard and not taken yet."""
        held, self._held = self._held, []
        return held

    async def wait(self, seconds: float) -> bool:
        """Wait for news; whether there were any within `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                await self._bell.wait()
        except TimeoutError:
            return False
        self._bell.clear()
        return True


type Observer = Callable[[str, Sequence[StoredEvent], float], None]
"""Told of each flush of this process: the run, its new events, and the seconds that it took."""


class Broadcast:
    """Knows who listens to which run. A listener that nobody holds any more is forgotten."""

    def __init__(self, hub: NotificationHub | None = None) -> None:
        self.observers: list[Observer] = []
        self._hub = hub
        self._listeners: defaultdict[str, WeakSet[Listener]] = defaultdict(WeakSet)
        self._written_here: set[str] = set()

    def listener(self, key: RunKey, after: int, *, behind: bool = True) -> Listener:
        """Return a new listener for what follows number `after`."""
        listener = Listener(key, after, behind=behind)
        self._listeners[key.id].add(listener)
        finalize(listener, self._found, key.id).atexit = False
        return listener

    def listeners(self) -> Iterable[Listener]:
        """Return all listeners of this process."""
        for run_id in tuple(self._listeners):
            yield from self._found(run_id)

    @contextmanager
    def writing(self, run_id: str) -> Generator[None]:
        """Say that this process writes the run, and so publishes what it writes itself."""
        self._written_here.add(run_id)
        try:
            yield
        finally:
            self._written_here.discard(run_id)
            self._distrust(run_id)

    def publish(self, run_id: str, events: Sequence[StoredEvent], seconds: float = 0.0) -> None:
        """Hand what was committed, in so many seconds, to the listeners and observers of this process."""
        for listener in self._found(run_id):
            listener.hear(events)
        for observe in self.observers:
            observe(run_id, events, seconds)

    @property
    def has_remote_listeners(self) -> bool:
        """Whether another process may be waiting for notifications of what this one writes."""
        return self._hub is None or self._hub.has_peers

    @contextmanager
    def following(self, hub: NotificationHub) -> Generator[None]:
        """Learn from `hub` what other processes write, for as long as the context lasts."""
        with hub.subscribed(CHANNEL, self._noticed, lambda: self._distrust(*self._listeners)):
            yield

    def _noticed(self, notice: str) -> None:
        run_id, _, seq = notice.partition(":")
        if run_id not in self._written_here:
            for listener in self._found(run_id):
                listener.hear_of(int(seq))

    def _found(self, run_id: str) -> Iterable[Listener]:
        found = tuple(self._listeners.get(run_id, ()))
        if not found:
            self._listeners.pop(run_id, None)
        return found

    def _distrust(self, *run_ids: str) -> None:
        for run_id in run_ids:
            for listener in self._found(run_id):
                listener.hear_of(listener.last + 1)


@asynccontextmanager
async def open_broadcast(url: str) -> AsyncGenerator[Broadcast]:
    """Listen for as long as the context lasts. `url` must reach Postgres itself, not a transaction pooler."""
    async with open_hub(url) as hub:
        broadcast = Broadcast(hub)
        with broadcast.following(hub):
            yield broadcast
