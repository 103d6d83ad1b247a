"""The job queue of runs that may be claimed. The run row decides which worker owns a run."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from math import inf

from psycopg import OperationalError

from starling.infra.postgres.connections import answers_within
from starling.infra.postgres.notifications import NotificationHub
from starling.infra.postgres.runs.acceptance import Connection, RunKey
from starling.infra.queue.run_jobs import RunJobs, TenantSlots, open_jobs

type Handler = Callable[[RunKey], Awaitable[None]]

_RESTART_SECONDS = 0.5
_log = logging.getLogger(__name__)


class RunQueue:
    """Defers jobs in the caller's transaction, and processes jobs until cancelled.

    While `work` runs, runs accepted by this process can skip the queue: `reserve` a slot, then `start` or `release`.
    Fetched and directly started runs together take the slots that `work` is given.
    """

    def __init__(self, url: str, hub: NotificationHub | None = None) -> None:
        self._url = url
        self._hub = hub
        self._opened = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._jobs: RunJobs | None = None
        self._handler: Handler | None = None
        self._slots = TenantSlots()
        self._direct: set[asyncio.Task[None]] = set()

    async def open(self) -> RunJobs:
        """Connect; the first that needs it waits for that.

        Raises the driver's errors.
        """
        async with self._opening:
            if self._jobs is None:
                jobs = open_jobs(self._url, self._hub, self._slots, self._fetched)
                self._jobs = await self._opened.enter_async_context(jobs)
            return self._jobs

    async def close(self) -> None:
        """Close the connections."""
        await self._opened.aclose()

    async def defer(self, connection: Connection, keys: Sequence[RunKey]) -> None:
        """Queue these runs when the transaction of `connection` commits, with at most one pending job per run.

        Raises the driver's errors, as every other statement of that transaction does.
        """
        await (await self.open()).defer(connection, keys)

    def reserve(self, tenant: str) -> bool:
        """Reserve a slot for a run that this process is accepting; return False where the tenant gets none."""
        if not self._slots.is_free(tenant):
            return False
        self._slots.take(tenant)
        return True

    def start(self, key: RunKey) -> None:
        """Start a run in the worker of this process, in its reserved slot."""
        with answers_within(inf):  # the run outlives the request that it was accepted with
            task = asyncio.get_running_loop().create_task(self._handle(key), name=f"handle-{key.id}")
        self._direct.add(task)
        task.add_done_callback(partial(self._direct_ended, key.tenant))

    def release(self, tenant: str) -> None:
        """Free a slot."""
        self._slots.release(tenant)
        if self._jobs is not None:
            self._jobs.fetch_skipped()

    def reserve_isolated(self) -> bool:
        """Reserve one of the slots of suspected runs; return False where none is free."""
        return self._slots.take_isolated()

    def release_isolated(self) -> None:
        """Free a slot of suspected runs."""
        self._slots.release_isolated()
        if self._jobs is not None:
            self._jobs.fetch()

    async def work(self, handler: Handler, *, concurrency: int, per_tenant: int, isolated: int) -> None:
        """Pass jobs to `handler` until cancelled; restart after Postgres was unavailable.

        Up to `concurrency` runs are handled at a time, up to `per_tenant` of one tenant. Jobs of suspected runs are
        left to other workers while `isolated` slots are reserved.
        """
        self._handler = handler
        self._slots.resize(concurrency, per_tenant, isolated)
        try:
            while True:
                try:
                    jobs = await self.open()
                except OperationalError as error:
                    _log.warning("the queue could not be reached and is opened again: %s", error)
                else:
                    await jobs.work(concurrency)
                await asyncio.sleep(_RESTART_SECONDS)
        finally:
            self._slots.resize(0, 0, 0)
            for task in self._direct:
                task.cancel()

    def _direct_ended(self, tenant: str, task: asyncio.Task[None]) -> None:
        self._direct.discard(task)
        self.release(tenant)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("%s failed", task.get_name(), exc_info=error)

    async def _handle(self, key: RunKey) -> None:
        assert self._handler is not None
        await self._handler(key)

    async def _fetched(self, key: RunKey) -> None:
        self._slots.take(key.tenant)
        try:
            await self._handle(key)
        finally:
            self.release(key.tenant)


@asynccontextmanager
async def open_queue(url: str, hub: NotificationHub | None = None) -> AsyncGenerator[RunQueue]:
    """Yield a queue with its own connections. `url` must reach Postgres itself, not a transaction pooler.

    It listens through `hub` where that is given, else on its own connection.
    """
    queue = RunQueue(url, hub)
    try:
        yield queue
    finally:
        await queue.close()
