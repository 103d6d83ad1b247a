"""The worker loop: claim runs, execute them under renewed leases, hand back what is unfinished."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter

from starling.app.telemetry.log_context import run_log_context
from starling.app.worker.heartbeat import Heartbeat
from starling.core.background_tasks import in_background
from starling.core.clock import lease_time
from starling.core.errors import DatabaseUnavailableError, LeaseLostError, RunUnwritableError
from starling.core.ids import process_name
from starling.core.run_status import RunEnd, RunStatus
from starling.core.runs import RunResult
from starling.core.settings.schema import Limits
from starling.infra.postgres.availability import retry_while_unavailable
from starling.infra.postgres.runs.acceptance import Claim, RunKey
from starling.infra.postgres.runs.leases import LeaseKey, Leases
from starling.infra.queue.run_queue import RunQueue

_SWEEP_SECONDS = 5.0
_STOP_SECONDS = 10.0  # after which a run that still waits for Postgres is left until its lease expires
_log = logging.getLogger(__name__)

type Execute = Callable[[Claim], Awaitable[RunResult | None]]
"""Returns the result of the run, or None where only this execution has ended: the run waits or continues later."""
type ExecuteAlone = Callable[[Claim], Awaitable[RunEnd | None]]
"""Returns how the run has ended, or None likewise."""
type Sweep = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class RunHandlers:
    """The functions that a worker calls.

    `execute` runs a claimed run; `execute_alone` one that is suspected of having ended its process; `park` takes one
    that crashed too often; `drain` makes executions end after their current step; `sweeps` are called after each sweep
    of the leases.
    """

    execute: Execute
    execute_alone: ExecuteAlone
    park: Execute
    drain: Callable[[], None]
    sweeps: Sequence[Sweep] = ()


class Worker:
    """Executes several runs at a time. A run whose lease is lost is stopped before another worker may claim it.

    Once `draining` is set it claims no more runs, and `work` returns after the current steps of the current ones.
    """

    isolated_runs = 4  # suspected ones at a time; each is alone in a process, others wait

    def __init__(
        self,
        queue: RunQueue,
        leases: Leases,
        heartbeat: Heartbeat,
        handlers: RunHandlers,
        limits: Limits,
        draining: asyncio.Event | None = None,
    ) -> None:
        self.name = process_name()
        self._queue = queue
        self._leases = leases
        self._heartbeat = heartbeat
        self._handlers = handlers
        self._limits = limits
        self._executions: dict[LeaseKey, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._in_process: Counter[str] = Counter()
        self._failed: set[str] = set()  # ids of runs whose last execution here raised an unexpected error
        self._drain_counts: Counter[str] = Counter()  # outcomes of the runs that were held when draining began
        self.draining = draining or asyncio.Event()
        self._stopping = False

    async def work(self) -> None:
        """Process runs until drained or cancelled, then hand unfinished runs back to the queue."""
        loop = asyncio.get_running_loop()
        self._stopping = False
        async with self._heartbeat.running() as renewing, in_background(self._sweep_periodically(), "sweep"):
            queue = self._queue.work(
                self._start,
                concurrency=self._limits.runs_per_worker,
                per_tenant=self._limits.tenant_runs_per_worker,
                isolated=self.isolated_runs,
            )
            fetching = loop.create_task(queue, name="fetch-runs")
            try:
                await self._until_drained(fetching, renewing)
            finally:
                if not fetching.cancelling():  # a second time would cut off the jobs that it finishes
                    fetching.cancel()
                await self._hand_back(fetching)
                counts = self._drain_counts
                if counts["held"]:
                    _log.info("drained; runs that ended: %d, handed back: %d", counts["ended"], counts["handed_back"])

    async def _until_drained(self, fetching: asyncio.Task[None], renewing: asyncio.Future[None]) -> None:
        draining = asyncio.get_running_loop().create_task(self.draining.wait(), name="drain")
        try:
            ended, _ = await asyncio.wait({fetching, renewing, draining}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            draining.cancel()
        for task in ended - {draining}:
            task.result()  # each of the two ends only with an error
        self._drain_counts = Counter(held=len(self._tasks))
        self._handlers.drain()
        fetching.cancel()
        if self._tasks:
            _log.info("runs that finish their current step before this worker stops: %d", len(self._tasks))
            await asyncio.wait(self._tasks, timeout=self._limits.drain_seconds)

    async def _hand_back(self, fetching: asyncio.Task[None]) -> None:
        self._stopping = True
        for execution in self._executions.values():
            execution.cancel()
        await asyncio.wait({fetching, *self._tasks}, timeout=_STOP_SECONDS)
        for task in self._tasks:
            _log.warning("%s could not be handed back: its lease has to expire", task.get_name())
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _start(self, key: RunKey) -> None:
        task = asyncio.get_running_loop().create_task(self._process(key), name=f"process-{key.id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.shield(task)  # a restart of the queue must not cancel the runs

    async def _process(self, key: RunKey) -> None:
        self._in_process[key.id] += 1
        try:
            if self._stopping or self.draining.is_set():
                await self._leases.requeue(key)  # the job was fetched just before draining began
                return
            claim, since = await retry_while_unavailable(partial(self._claim, key), seconds=self._limits.lease_seconds)
            if claim is not None:
                await self._execute_claimed(claim, since)
            elif (version := await self._leases.later_version(key)) is not None:
                _log.warning("run %s waits for a worker of a newer version, which began it: graph %d", key.id, version)
        except DatabaseUnavailableError as error:
            _log.info("run %s could not be claimed and waits for the next sweep: %s", key.id, error)
        except Exception:
            self._failed.add(key.id)
            raise
        finally:
            self._in_process -= Counter({key.id: 1})  # Counter subtraction drops entries that reach zero

    async def _claim(self, key: RunKey) -> tuple[Claim | None, float]:
        since = lease_time()
        claim = await self._leases.claim(
            key,
            worker=self.name,
            lease_seconds=self._limits.lease_seconds,
            run_seconds=self._limits.run_seconds,
            reclaim_own=self._in_process[key.id] == 1 and key.id not in self._failed,
        )
        self._failed.discard(key.id)
        return claim, since

    async def _execute_claimed(self, claim: Claim, since: float) -> None:
        """Execute a claimed run, stop it if its lease is lost, and hand it back if it is unfinished."""
        run, loop = claim.run, asyncio.get_running_loop()
        execution = loop.create_task(self._execute(claim), name=f"run-{run.id}")
        self._executions[run.id, run.fence] = execution
        self._heartbeat.add(run, since, execution.cancel)
        if self._stopping:
            execution.cancel()
        try:
            await asyncio.wait({execution})
        finally:
            execution.cancel()
            self._heartbeat.remove(run)
            del self._executions[run.id, run.fence]
        if execution.cancelled() or self.draining.is_set():
            release = partial(self._leases.release, run)
            if await retry_while_unavailable(release, give_up=lambda: self._stopping):
                self._drain_counts["handed_back"] += 1
        if not execution.cancelled():
            execution.result()

    async def _execute(self, claim: Claim) -> None:
        begun = perf_counter()
        park = claim.run.crashes >= self._limits.crashes_per_run
        with run_log_context(claim.run):
            _log.info(
                "run claimed", extra={"worker": self.name, "claim": claim.run.fence, "crashes": claim.run.crashes}
            )
            try:
                ended = await self._handled(claim, park=park)
            except (LeaseLostError, DatabaseUnavailableError) as error:
                _log.info("run %s stopped in this worker and continues elsewhere or later: %s", claim.run.id, error)
                if isinstance(error, RunUnwritableError) and not park:  # although its lease was renewed
                    self._failed.add(claim.run.id)
            else:
                fields = {"ms": round((perf_counter() - begun) * 1000)}
                if ended is None:
                    _log.info("execution ended", extra=fields)
                else:
                    self._drain_counts["ended"] += 1
                    _log.info("run ended", extra=fields | {"status": ended.status, "code": ended.code})

    async def _handled(self, claim: Claim, *, park: bool) -> RunEnd | None:
        """Return how a run has ended, None for one that waits or continues later."""
        if park or not claim.run.suspected:
            result = await (self._handlers.park if park else self._handlers.execute)(claim)
            return None if result is None else RunEnd(RunStatus(result.status), result.code)
        # A suspected run is executed if a process may start for it, else handed back: it must not keep its slot.
        if not self._queue.reserve_isolated():
            await retry_while_unavailable(partial(self._leases.release, claim.run))
            return None
        try:
            return await self._handlers.execute_alone(claim)
        finally:
            self._queue.release_isolated()

    async def _sweep_periodically(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            try:
                seconds = self._limits.lease_seconds
                found = await self._leases.sweep(grace_seconds=seconds, lease_seconds=seconds)
                for sweep in self._handlers.sweeps:
                    await sweep()
                if found:
                    _log.warning("runs without a valid lease that were queued again: %d", found)
            except DatabaseUnavailableError:
                continue
            except Exception:  # noqa: BLE001 - the worker's edge: the next sweep may succeed
                _log.exception("the sweep failed")
