"""Claims runs and brings them to their end, under leases that it keeps renewing."""

import asyncio
import logging
import os
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import perf_counter

from starling.app.logs import bound_to_logs
from starling.core.errors import DatabaseUnavailableError, LeaseLostError
from starling.core.runs import Run
from starling.core.settings import Limits
from starling.infra.postgres.leases import Leases
from starling.infra.postgres.runs import Claim, RunKey
from starling.infra.queue.runs import RunQueue

_RENEWALS_PER_LEASE = 3
_STOP_SECONDS = 10.0  # then whatever still waits for Postgres is left to its lease
_log = logging.getLogger(__name__)

type Execute = Callable[[Claim], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _Held:
    run: Run
    task: asyncio.Task[None]


class Worker:
    """Works on many runs at once. A run whose lease is lost is dropped: another worker has it."""

    def __init__(self, queue: RunQueue, leases: Leases, execute: Execute, limits: Limits) -> None:
        self.name = f"{socket.gethostname()}:{os.getpid()}"
        self._queue = queue
        self._leases = leases
        self._execute = execute
        self._limits = limits
        self._held: dict[str, _Held] = {}

    async def work(self) -> None:
        """Work until cancelled; then hand back what is unfinished, for others to go on with."""
        loop = asyncio.get_running_loop()
        heartbeat = loop.create_task(self._keep_leases(), name="renew-leases")
        try:
            await self._queue.work(self._take, self._sweep, concurrency=self._limits.runs_per_worker)
        finally:
            heartbeat.cancel()
            await self._hand_back()

    async def _take(self, key: RunKey) -> None:
        claim = await self._leases.claim(
            key,
            worker=self.name,
            lease_seconds=self._limits.lease_seconds,
            run_seconds=self._limits.run_seconds,
        )
        if claim is None:
            return
        task = asyncio.get_running_loop().create_task(self._live(claim), name=f"run-{key.id}")
        self._held[key.id] = _Held(claim.run, task)
        task.add_done_callback(lambda _: self._forget(key.id, task))
        await asyncio.shield(task)  # a queue that restarts doesn't take its runs with it

    def _forget(self, run_id: str, task: asyncio.Task[None]) -> None:
        """Let go of a life that ended; the same worker may hold the run's next life already."""
        if (held := self._held.get(run_id)) and held.task is task:
            del self._held[run_id]

    async def _live(self, claim: Claim) -> None:
        begun = perf_counter()
        with bound_to_logs(claim.run):
            try:
                await self._execute(claim)
            except (LeaseLostError, DatabaseUnavailableError) as error:
                _log.warning("run %s goes on elsewhere or later: %s", claim.run.id, error)
            else:
                _log.info("run ended", extra={"ms": round((perf_counter() - begun) * 1000)})

    async def _sweep(self) -> None:
        found = await self._leases.sweep(patience_seconds=self._limits.lease_seconds)
        if found:
            _log.warning("%d runs that nobody held were queued again", found)

    async def _keep_leases(self) -> None:
        while True:
            await asyncio.sleep(self._limits.lease_seconds / _RENEWALS_PER_LEASE)
            held = dict(self._held)
            if not held:
                continue
            try:
                runs = [item.run for item in held.values()]
                kept = await self._leases.renew(runs, lease_seconds=self._limits.lease_seconds)
            except DatabaseUnavailableError as error:
                _log.warning("leases can't be renewed: %s", error)
                continue
            for run_id in held.keys() - kept:
                held[run_id].task.cancel()

    async def _hand_back(self) -> None:
        held = list(self._held.values())
        for item in held:
            item.task.cancel()
        await asyncio.gather(*(item.task for item in held), return_exceptions=True)
        try:
            await self._leases.release([item.run for item in held])
        except DatabaseUnavailableError as error:
            _log.warning("unfinished runs wait for their leases to end: %s", error)


@asynccontextmanager
async def working(worker: Worker) -> AsyncGenerator[asyncio.Task[None]]:
    """Let the worker work in the background for as long as the context lasts; gives its task.

    The task ends before that only with an error.
    """
    task = asyncio.get_running_loop().create_task(worker.work(), name="worker")
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task], timeout=_STOP_SECONDS)
