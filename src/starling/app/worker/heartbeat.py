"""Keeps the leases of runs, from a thread of its own: a loop that is blocked keeps them too."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from threading import Event

from starling.core.clock import lease_time
from starling.core.errors import DatabaseUnavailableError
from starling.core.runs import Run
from starling.infra.postgres.runs.lease_renewal import Hold, Renewals, Renewed

_BEATS = 3  # of a lease, when all goes well
_SURE = 5 / 6  # of a lease is counted on: what is left is for stopping before somebody else may start
_LOOKS = 20  # of a lease, for leases that have run out
_RETRIES = 15  # of a lease

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Lease:
    run: Run
    since: float  # in `lease_time`: when the claim or the last renewal that succeeded *began*
    lose: Callable[[], object]


class Heartbeat:
    """Renews the leases of the runs that it holds, and says which are lost.

    A lease is lost when the fence has moved on, or when it couldn't be renewed for so long that it may end.
    """

    def __init__(self, renewals: Renewals, lease_seconds: float, on_cancel: Callable[[str], None]) -> None:
        self._renewals = renewals
        self._seconds = lease_seconds
        self._on_cancel = on_cancel
        self._leases: dict[Hold, _Lease] = {}
        self._runs: Sequence[Run] = ()  # what the thread sees

    def hold(self, run: Run, since: float, lose: Callable[[], object]) -> None:
        """Keep the lease of a run that was claimed; `lose` is called, in the loop, once it is lost."""
        self._leases[run.id, run.fence] = _Lease(run, since, lose)
        self._changed()

    def let_go(self, run: Run) -> None:
        """Keep it no longer."""
        self._leases.pop((run.id, run.fence), None)
        self._changed()

    @asynccontextmanager
    async def beating(self) -> AsyncGenerator[asyncio.Future[None]]:
        """Keep leases for as long as the context lasts. Gives what ends before that only with an error."""
        loop = asyncio.get_running_loop()
        watch = loop.create_task(self._watch(), name="watch-leases")
        thread = ThreadPoolExecutor(1, thread_name_prefix="heartbeat")
        ended = Event()
        beats = loop.run_in_executor(thread, self._beat, loop, ended)
        try:
            yield beats
        finally:
            ended.set()
            watch.cancel()
            await asyncio.gather(watch, beats, return_exceptions=True)
            thread.shutdown(wait=False)

    def _beat(self, loop: asyncio.AbstractEventLoop, ended: Event) -> None:
        """Renew until the end. The only code here that runs in the thread."""
        pause = self._seconds / _BEATS
        with self._renewals:
            while not ended.wait(pause):
                renewed = self._renew(loop, self._runs)
                pause = self._seconds / (_BEATS if renewed else _RETRIES)

    def _renew(self, loop: asyncio.AbstractEventLoop, runs: Sequence[Run]) -> bool:
        if not runs:
            return True
        begun = lease_time()
        try:
            renewed = self._renewals.renew(runs)
        except DatabaseUnavailableError as error:
            _log.warning("leases can't be renewed: %s", error)
            return False
        loop.call_soon_threadsafe(self._take, begun, runs, renewed)
        return not renewed.locked

    def _take(self, begun: float, runs: Sequence[Run], renewed: Renewed) -> None:
        for hold in ((run.id, run.fence) for run in runs):
            lease = self._leases.get(hold)
            if lease is None:
                continue
            if hold not in renewed.held:
                self._lose(lease, "another worker has it")
            elif hold not in renewed.locked:
                lease.since = begun
            if hold in renewed.cancelled:
                self._on_cancel(lease.run.id)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._seconds / _LOOKS)
            lapsed = lease_time() - self._seconds * _SURE
            for lease in list(self._leases.values()):
                if lease.since < lapsed:
                    self._lose(lease, "its lease couldn't be renewed")

    def _lose(self, lease: _Lease, reason: str) -> None:
        _log.warning("run %s is stopped here: %s", lease.run.id, reason)
        self.let_go(lease.run)
        lease.lose()

    def _changed(self) -> None:
        self._runs = tuple(lease.run for lease in self._leases.values())
