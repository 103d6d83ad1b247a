"""Renewal of run leases in a separate thread, so that a blocked event loop does not lose them."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from threading import Event

from starling.app.telemetry.log_context import run_log_context
from starling.core.clock import lease_time
from starling.core.errors import DatabaseUnavailableError
from starling.core.outages import Outage
from starling.core.runs import Run
from starling.infra.postgres.availability import postgres_outage
from starling.infra.postgres.runs.leases import LeaseKey, LeaseRenewer, RenewalResult

_RENEWALS_PER_LEASE = 3  # while renewals succeed
_TRUSTED_SHARE = 5 / 6  # of a lease; the rest is the time to stop a run before another worker may claim it
_EXPIRY_CHECKS_PER_LEASE = 20
_PART = "leases"  # of an outage
_RETRIES_PER_LEASE = 15  # after a renewal that failed or met a locked row

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Lease:
    run: Run
    since: float  # in `lease_time`: when the claim or the last renewal that succeeded *began*
    on_lost: Callable[[], object]


class Heartbeat:
    """Renews the leases of the registered runs and calls back when one is lost.

    A lease is lost when the run's fence has changed, or when it was not renewed for so long that it may expire.
    """

    def __init__(
        self,
        renewals: LeaseRenewer,
        lease_seconds: float,
        on_cancel: Callable[[str], None],
        outage: Outage | None = None,
    ) -> None:
        self._outage = outage or postgres_outage()
        self._renewals = renewals
        self._seconds = lease_seconds
        self._on_cancel = on_cancel
        self._leases: dict[LeaseKey, _Lease] = {}
        self._runs: Sequence[Run] = ()  # the snapshot that the renewal thread reads
        self._has_leases = asyncio.Event()

    def add(self, run: Run, since: float, on_lost: Callable[[], object]) -> None:
        """Renew the lease of a claimed run from now on; `on_lost` is called in the event loop when it is lost.

        `since` is the `lease_time` at which the claim began.
        """
        self._leases[run.id, run.fence] = _Lease(run, since, on_lost)
        self._publish_runs()

    def remove(self, run: Run) -> None:
        """Stop renewing the lease of a run."""
        self._leases.pop((run.id, run.fence), None)
        self._publish_runs()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[asyncio.Future[None]]:
        """Renew leases while the context lasts; yield a future that completes earlier only with an error."""
        loop = asyncio.get_running_loop()
        expiry_task = loop.create_task(self._stop_expired(), name="stop-expired-leases")
        thread = ThreadPoolExecutor(1, thread_name_prefix="heartbeat")
        ended = Event()
        renewing = loop.run_in_executor(thread, self._renew_until_ended, loop, ended)
        try:
            yield renewing
        finally:
            ended.set()
            expiry_task.cancel()
            await asyncio.gather(expiry_task, renewing, return_exceptions=True)
            thread.shutdown(wait=False)

    def _renew_until_ended(self, loop: asyncio.AbstractEventLoop, ended: Event) -> None:
        """Renew until `ended` is set. Only this method and `_renew` run in the thread."""
        pause = self._seconds / _RENEWALS_PER_LEASE
        with self._renewals:
            while not ended.wait(pause):
                renewed = self._renew(loop, self._runs)
                pause = self._seconds / (_RENEWALS_PER_LEASE if renewed else _RETRIES_PER_LEASE)

    def _renew(self, loop: asyncio.AbstractEventLoop, runs: Sequence[Run]) -> bool:
        if not runs:
            self._outage.recovered(_PART)
            return True
        begun = lease_time()
        try:
            renewed = self._renewals.renew(runs)
        except DatabaseUnavailableError as error:
            self._outage.failed(error, _PART)
            return False
        self._outage.recovered(_PART)
        loop.call_soon_threadsafe(self._apply, begun, runs, renewed)
        return not renewed.locked

    def _apply(self, begun: float, runs: Sequence[Run], renewed: RenewalResult) -> None:
        for key in ((run.id, run.fence) for run in runs):
            lease = self._leases.get(key)
            if lease is None:
                continue
            if key not in renewed.held:
                self._lose(lease, logging.WARNING, "another worker claimed it")
            elif key not in renewed.locked:
                lease.since = begun
            if key in renewed.cancelled:
                self._on_cancel(lease.run.id)

    async def _stop_expired(self) -> None:
        while True:
            await self._has_leases.wait()
            await asyncio.sleep(self._seconds / _EXPIRY_CHECKS_PER_LEASE)
            lapsed = lease_time() - self._seconds * _TRUSTED_SHARE
            for lease in list(self._leases.values()):
                if lease.since < lapsed:
                    self._lose(lease, logging.INFO, "its lease couldn't be renewed")

    def _lose(self, lease: _Lease, level: int, reason: str) -> None:
        with run_log_context(lease.run):
            _log.log(level, "the run is stopped in this worker: %s", reason)
        self.remove(lease.run)
        lease.on_lost()

    def _publish_runs(self) -> None:
        self._runs = tuple(lease.run for lease in self._leases.values())
        if self._runs:
            self._has_leases.set()
        else:
            self._has_leases.clear()
