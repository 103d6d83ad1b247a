"""Waking readers: NOTIFY says that a run has new events, a slow poll catches what it missed."""

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import AsyncGenerator, Generator

from psycopg import AsyncConnection, OperationalError

CHANNEL = "starling_runs"
NOTIFY = f"SELECT pg_notify('{CHANNEL}', %s)"

_RECONNECT_SECONDS = 1.0
_log = logging.getLogger(__name__)


class Wakes:
    """Bells by run id: rung by writers of this process directly, by those of others through LISTEN."""

    def __init__(self) -> None:
        self._bells: dict[str, set[asyncio.Event]] = defaultdict(set)

    def ring(self, run_id: str) -> None:
        """Wake everybody who waits for this run."""
        for bell in self._bells.get(run_id, ()):
            bell.set()

    @contextlib.contextmanager
    def bell(self, run_id: str) -> Generator[asyncio.Event]:
        """Hand out an event that is set whenever the run may have something new."""
        bell = asyncio.Event()
        self._bells[run_id].add(bell)
        try:
            yield bell
        finally:
            self._bells[run_id].discard(bell)
            if not self._bells[run_id]:
                del self._bells[run_id]

    async def listen(self, url: str) -> None:
        """Ring for what other processes write, for ever; a lost connection is opened again."""
        while True:
            try:
                async with await AsyncConnection.connect(url, autocommit=True, connect_timeout=10) as connection:
                    await connection.execute(f"LISTEN {CHANNEL}")
                    self._ring_all()  # what came while nobody listened
                    async for notice in connection.notifies():
                        self.ring(notice.payload)
            except OperationalError as error:
                _log.warning("lost the connection that listens for events: %s", error)
            await asyncio.sleep(_RECONNECT_SECONDS)

    def _ring_all(self) -> None:
        for run_id in tuple(self._bells):
            self.ring(run_id)


@contextlib.asynccontextmanager
async def open_wakes(url: str) -> AsyncGenerator[Wakes]:
    """Listen for as long as the context lasts. `url` must reach Postgres itself, not a transaction pooler."""
    wakes = Wakes()
    listener = asyncio.get_running_loop().create_task(wakes.listen(url), name="listen-for-events")
    try:
        yield wakes
    finally:
        listener.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await listener
