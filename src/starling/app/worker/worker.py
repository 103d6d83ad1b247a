"""Claims runs and brings them to their end, under leases that its heartbeat keeps."""

import asyncio
import logging
import os
import secrets
import socket
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from time import perf_counter

from starling.app.runtime.background_tasks import in_background
from starling.app.telemetry.logs import run_log_context
from starling.app.worker.heartbeat import Heartbeat
from starling.core.clock import lease_time
from starling.core.errors import DatabaseUnavailableError, LeaseLostError, RunUnwritableError
from starling.core.runs import Run, RunResult
from starling.core.settings import Limits
from starling.infra.postgres.retry_backoff import retry_while_unavailable
from starling.infra.postgres.runs.acceptance import Claim, RunKey
from starling.infra.postgres.runs.lease_renewal import Hold
from starling.infra.postgres.runs.leases import Leases
from starling.infra.queue.run_queue import RunQueue

_SWEEP_SECONDS = 5.0
_STOP_SECONDS = 10.0  # then whatever still waits for Postgres is left to its lease
_log = logging.getLogger(__name__)

type Execute = Callable[[Claim], Awaitable[RunResult | None]]
"""Returns what the run came to, None where only this life of it is over: it waits, or goes on later."""
type Sweep = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Work:
    """What is done with runs. `drain` has lives end after the step that they are in, and `sweeps` come by and by."""

    execute: Execute
    park: Execute
    drain: Callable[[], None]
    sweeps: Sequence[Sweep] = ()


class Worker:
    """Works on many runs at once. A run whose lease is lost is stopped, before another worker may go on with it."""

    def __init__(self, queue: RunQueue, leases: Leases, heartbeat: Heartbeat, work: Work, limits: Limits) -> None:
        self.name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        self._queue = queue
        self._leases = leases
        self._heartbeat = heartbeat
        self._work = work
        self._limits = limits
        self._lives: dict[Hold, asyncio.Task[None]] = {}
        self._holders: set[asyncio.Task[None]] = set()
        self._in_hand: Counter[str] = Counter()
        self._broken: set[str] = set()  # runs whose last life here ended in a way that nobody expected
        self._drained: Counter[str] = Counter()  # what became of the runs that were in hand
        self._draining = asyncio.Event()
        self._stopping = False

    def drain(self) -> None:
        """Take no more runs, and let those in hand come to the end of the step that they are in: then `work` ends."""
        self._drained = Counter(held=len(self._holders))
        self._draining.set()
        self._work.drain()

    async def work(self) -> None:
        """Work until drained or cancelled. What is unfinished then is handed back, for others to go on with."""
        loop = asyncio.get_running_loop()
        self._stopping = False
        async with self._heartbeat.beating() as beats, in_background(self._sweep_while_full(), "sweep-while-full"):
            queue = self._queue.work(self._take, self._sweep, concurrency=self._limits.runs_per_worker)
            fetching = loop.create_task(queue, name="fetch-runs")
            try:
                await self._until_drained(fetching, beats)
            finally:
                fetching.cancel()
                await self._hand_back(fetching)
                self._say_what_became()

    async def _until_drained(self, fetching: asyncio.Task[None], beats: asyncio.Future[None]) -> None:
        draining = asyncio.get_running_loop().create_task(self._draining.wait(), name="drain")
        try:
            ended, _ = await asyncio.wait({fetching, beats, draining}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            draining.cancel()
        for task in ended - {draining}:
            task.result()  # neither ends but with an error
        fetching.cancel()
        if self._holders:
            _log.info("runs that come to the end of a step before this worker stops: %d", len(self._holders))
            await asyncio.wait(self._holders, timeout=self._limits.drain_seconds)

    async def _hand_back(self, fetching: asyncio.Task[None]) -> None:
        self._stopping = True
        for life in self._lives.values():
            life.cancel()
        await asyncio.wait({fetching, *self._holders}, timeout=_STOP_SECONDS)
        for holder in self._holders:
            _log.warning("%s waits for the end of its lease", holder.get_name())
            holder.cancel()
        await asyncio.gather(*self._holders, return_exceptions=True)

    def _say_what_became(self) -> None:
        became = self._drained
        if became["held"]:
            _log.info("drained; runs that ended: %d, handed back: %d", became["ended"], became["handed_back"])

    async def _take(self, key: RunKey) -> None:
        holder = asyncio.get_running_loop().create_task(self._hold(key), name=f"hold-{key.id}")
        self._holders.add(holder)
        holder.add_done_callback(self._holders.discard)
        await asyncio.shield(holder)  # a queue that restarts doesn't take its runs with it

    async def _hold(self, key: RunKey) -> None:
        self._in_hand[key.id] += 1
        try:
            if self._stopping or self._draining.is_set():
                await self._leases.pass_on(key)  # it was being fetched just then
                return
            claim, since = await retry_while_unavailable(partial(self._claim, key), seconds=self._limits.lease_seconds)
            if claim is not None:
                await self._hold_claimed(claim, since)
        except DatabaseUnavailableError as error:
            _log.warning("run %s waits for the next sweep: %s", key.id, error)
        except Exception:
            self._broken.add(key.id)
            raise
        finally:
            self._in_hand -= Counter({key.id: 1})  # which forgets what it counts no more of

    async def _claim(self, key: RunKey) -> tuple[Claim | None, float]:
        since = lease_time()
        claim = await self._leases.claim(
            key,
            worker=self.name,
            lease_seconds=self._limits.lease_seconds,
            run_seconds=self._limits.run_seconds,
            unaware=self._in_hand[key.id] == 1 and key.id not in self._broken,
        )
        self._broken.discard(key.id)
        return claim, since

    async def _hold_claimed(self, claim: Claim, since: float) -> None:
        """See to it that a life ends before its lease does, and that what it leaves unfinished is handed back."""
        run, loop = claim.run, asyncio.get_running_loop()
        life = loop.create_task(self._live(claim), name=f"run-{run.id}")
        self._lives[run.id, run.fence] = life
        self._heartbeat.hold(run, since, life.cancel)
        if self._stopping:
            life.cancel()
        try:
            await asyncio.wait({life})
        finally:
            life.cancel()
            self._heartbeat.let_go(run)
            del self._lives[run.id, run.fence]
        if life.cancelled() or self._draining.is_set():
            await self._release(run)
        if not life.cancelled():
            life.result()

    async def _live(self, claim: Claim) -> None:
        begun = perf_counter()
        parks = claim.run.crashes >= self._limits.crashes_per_run
        do = self._work.park if parks else self._work.execute
        with run_log_context(claim.run):
            try:
                result = await do(claim)
            except (LeaseLostError, DatabaseUnavailableError) as error:
                _log.warning("run %s goes on elsewhere or later: %s", claim.run.id, error)
                if isinstance(error, RunUnwritableError) and not parks:  # its lease was renewed all the time
                    self._broken.add(claim.run.id)
            else:
                more = {"ms": round((perf_counter() - begun) * 1000)}
                if result is None:
                    _log.info("life ended", extra=more)
                else:
                    self._drained["ended"] += 1
                    _log.info("run ended", extra=more | {"status": result.status})

    async def _release(self, run: Run) -> None:
        """Hand a run back, if we still hold it; while Postgres is away, again and again."""
        if await retry_while_unavailable(partial(self._leases.release, run), give_up=lambda: self._stopping):
            self._drained["handed_back"] += 1

    async def _sweep_while_full(self) -> None:
        """Sweep where the queue can't have it done: it waits for a free hand, and there may be none anywhere."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            if len(self._holders) < self._limits.runs_per_worker:
                continue
            try:
                await self._sweep()
            except Exception:  # noqa: BLE001 - the worker's edge: the next one may fare better
                _log.exception("the sweep failed")

    async def _sweep(self) -> None:
        try:
            found = await self._leases.sweep(patience_seconds=self._limits.lease_seconds)
            for sweep in self._work.sweeps:
                await sweep()
        except DatabaseUnavailableError as error:
            _log.warning("the sweep waits: %s", error)
            return
        if found:
            _log.warning("%d runs that nobody held were queued again", found)


@asynccontextmanager
async def working(worker: Worker) -> AsyncGenerator[asyncio.Task[None]]:
    """Let the worker work in the background for as long as the context lasts; gives its task.

    The task ends before that only when the worker was drained, or with an error.
    """
    task = asyncio.get_running_loop().create_task(worker.work(), name="worker")
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task], timeout=_STOP_SECONDS)
