"""The job queue of runs that may be claimed. The run row decides which worker owns a run."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from math import inf

import procrastinate
from procrastinate.exceptions import ConnectorException, ProcrastinateException
from psycopg import OperationalError

from starling.core.outages import Outage
from starling.infra.postgres.availability import postgres_outage
from starling.infra.postgres.connections import answers_within
from starling.infra.postgres.engine import first_line
from starling.infra.postgres.notifications import NotificationHub
from starling.infra.postgres.runs.acceptance import Connection, RunKey
from starling.infra.queue.run_jobs import QUEUE, FairJobs, JobConnector, TenantSlots

type Handler = Callable[[RunKey], Awaitable[None]]

_FETCH_SECONDS = 5.0
_ABORT_SECONDS = 1.0
_RESTART_SECONDS = 0.5
_log = logging.getLogger(__name__)


class RunQueue:
    """Defers jobs in the caller's transaction, and processes jobs until cancelled.

    While `work` runs, runs accepted by this process can skip the queue: `reserve` a slot, then `start` or `release`.
    Fetched and directly started runs together take the slots that `work` is given. `url` must reach Postgres itself,
    not a transaction pooler; it is connected to only by `work`.
    """

    def __init__(self, url: str, hub: NotificationHub, outage: Outage | None = None) -> None:
        self._outage = outage or postgres_outage()
        self._slots = TenantSlots()
        connector = JobConnector(url, hub)
        self._app = procrastinate.App(connector=connector)
        self._app.job_manager = self._jobs = FairJobs(connector, self._slots, self._outage)
        self._task = self._app.task(name="starling.run", queue=QUEUE)(self._fetched)
        self._handler: Handler | None = None
        self._direct: set[asyncio.Task[None]] = set()

    async def defer(self, connection: Connection, keys: Sequence[RunKey]) -> None:
        """Queue these runs when the transaction of `connection` commits, with at most one pending job per run.

        Raises the driver's errors, as every other statement of that transaction does.
        """
        for key in keys:
            job = self._task.configure(connection=connection, queueing_lock=key.id)
            try:
                await job.defer_async(tenant=key.tenant, run_id=key.id)
            except ConnectorException as error:
                raise error.__cause__ or error from None

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
        self._jobs.fetch_skipped()

    def reserve_isolated(self) -> bool:
        """Reserve one of the slots of suspected runs; return False where none is free."""
        return self._slots.take_isolated()

    def release_isolated(self) -> None:
        """Free a slot of suspected runs."""
        self._slots.release_isolated()
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
                await self._work(concurrency)
                await asyncio.sleep(_RESTART_SECONDS)
        finally:
            self._slots.resize(0, 0, 0)
            for task in self._direct:
                task.cancel()

    async def _work(self, concurrency: int) -> None:
        """Fetch jobs and handle up to `concurrency` at a time, until cancelled or Postgres can't be reached."""
        try:
            async with AsyncExitStack() as stack:
                stack.push_async_callback(self._app.close_async)  # if opening fails or is cancelled, its tasks go on
                await self._app.open_async()
                await self._app.run_worker_async(
                    queues=[QUEUE],
                    concurrency=concurrency,
                    fetch_job_polling_interval=_FETCH_SECONDS,
                    shutdown_graceful_timeout=_ABORT_SECONDS,
                    delete_jobs="always",
                    install_signal_handlers=False,
                )
        except (OperationalError, ProcrastinateException) as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():  # a failure during shutdown has replaced the CancelledError
                raise asyncio.CancelledError from error
            self._outage.failed(first_line(error.__cause__ or error), QUEUE)

    def _direct_ended(self, tenant: str, task: asyncio.Task[None]) -> None:
        self._direct.discard(task)
        self.release(tenant)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("%s failed", task.get_name(), exc_info=error)

    async def _handle(self, key: RunKey) -> None:
        assert self._handler is not None
        await self._handler(key)

    async def _fetched(self, *, tenant: str, run_id: str) -> None:
        self._slots.take(tenant)
        try:
            await self._handle(RunKey(tenant, run_id))
        finally:
            self.release(tenant)
