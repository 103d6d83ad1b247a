"""The job queue of runs that may be claimed. The run row decides which worker owns a run."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from math import inf
from typing import Any

import procrastinate
from procrastinate.connector import Notify
from procrastinate.exceptions import ConnectorException, ProcrastinateException
from procrastinate.jobs import Job
from procrastinate.manager import JobManager
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from starling.infra.postgres.engine import check_alive
from starling.infra.postgres.notifications import NotificationHub
from starling.infra.postgres.runs.acceptance import Connection, RunKey
from starling.infra.postgres.timeouts import KEEPALIVE, BoundedConnection, answers_within
from starling.infra.queue.tenant_slots import TenantSlots

type Handler = Callable[[RunKey], Awaitable[None]]

QUEUE = "runs"
_FORMER_SWEEP = "starling.sweep"  # workers swept by jobs of this name; some may be left in the queue
_FETCH_SECONDS = 5.0
_ABORT_SECONDS = 1.0
_RESTART_SECONDS = 0.5
_POOL_SIZE = 3
_POOL_SECONDS = 5.0
_JOB_NOTIFICATION = '{"type": "job_inserted", "job_id": 0}'  # the payload that procrastinate sends; 0 is no job's id
_SERVER_OPTIONS = "-c synchronous_commit=off -c statement_timeout=30s -c lock_timeout=10s"

# The oldest job of the tenant that is next. In place of procrastinate_fetch_job_v2, which goes by priority and age;
# no job of ours has a `lock`.
_FETCH = """
UPDATE procrastinate_jobs SET status = 'doing', worker_id = %(worker_id)s
WHERE id = (
    SELECT jobs.id FROM procrastinate_jobs AS jobs
    LEFT JOIN unnest(%(order)s::text[]) WITH ORDINALITY AS served (tenant, place) ON served.tenant = args ->> 'tenant'
    WHERE status = 'todo' AND queue_name = ANY(%(queues)s::text[]) AND (scheduled_at IS NULL OR scheduled_at <= now())
        AND coalesce(args ->> 'tenant', '') <> ALL(%(at_limit)s::text[])
    ORDER BY served.place NULLS FIRST, jobs.id LIMIT 1
    FOR UPDATE OF jobs SKIP LOCKED)
RETURNING *"""

_log = logging.getLogger(__name__)


class RunQueue:
    """Defers jobs in the caller's transaction, and processes jobs until cancelled.

    While `work` runs, runs accepted by this process can skip the queue: `reserve` a slot, then `start` or `release`.
    Fetched and directly started runs together take the slots that `work` is given.
    """

    def __init__(self, app: procrastinate.App, connector: "_Connector") -> None:
        self._app = app
        self._connector = connector
        self._handler: Handler | None = None
        self._slots = TenantSlots()
        self._direct: set[asyncio.Task[None]] = set()
        app.job_manager = self._jobs = _Jobs(connector, self._slots)
        self._task = app.task(name="starling.run", queue=QUEUE)(self._run)
        app.task(name=_FORMER_SWEEP, queue=QUEUE)(_do_nothing)

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
        if self._jobs.skipped:
            self._jobs.skipped = False
            self._connector.trigger_fetch()

    async def work(self, handler: Handler, *, concurrency: int, per_tenant: int) -> None:
        """Pass jobs to `handler` until cancelled; restart after Postgres was unavailable.

        Up to `concurrency` runs are handled at a time, up to `per_tenant` of one tenant.
        """
        self._handler = handler
        self._slots.resize(concurrency, per_tenant)
        try:
            while True:
                await self._work(concurrency)
                await asyncio.sleep(_RESTART_SECONDS)
        finally:
            self._slots.resize(0, 0)
            for task in self._direct:
                task.cancel()

    async def _work(self, concurrency: int) -> None:
        try:
            await self._app.run_worker_async(
                queues=[QUEUE],
                concurrency=concurrency,
                fetch_job_polling_interval=_FETCH_SECONDS,
                shutdown_graceful_timeout=_ABORT_SECONDS,
                delete_jobs="always",
                install_signal_handlers=False,
            )
        except ProcrastinateException as error:
            _end_if_cancelled(error)
            _log.warning("the queue could not be reached and is restarted: %s", error)

    def _direct_ended(self, tenant: str, task: asyncio.Task[None]) -> None:
        self._direct.discard(task)
        self.release(tenant)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("%s failed", task.get_name(), exc_info=error)

    async def _handle(self, key: RunKey) -> None:
        assert self._handler is not None
        await self._handler(key)

    async def _run(self, *, tenant: str, run_id: str) -> None:
        self._slots.take(tenant)
        try:
            await self._handle(RunKey(tenant, run_id))
        finally:
            self.release(tenant)


class _Connector(procrastinate.PsycopgConnector):
    """Listens through the notification hub of the process, if one is set."""

    hub: NotificationHub | None = None
    _received: asyncio.Queue[tuple[str, str]] | None = None

    def trigger_fetch(self) -> None:
        """Make the worker fetch a job now, as after a notification."""
        self._receive("", _JOB_NOTIFICATION)

    async def listen_notify(self, on_notification: Notify, channels: Iterable[str]) -> None:
        if self.hub is None:
            return await super().listen_notify(on_notification, channels)
        self._received = asyncio.Queue()
        with ExitStack() as stack:
            for channel in channels:
                stack.enter_context(self.hub.subscribed(channel, partial(self._receive, channel), self.trigger_fetch))
            while True:
                channel, payload = await self._received.get()
                await on_notification(channel=channel, payload=payload)

    def _receive(self, channel: str, payload: str) -> None:
        if self._received is not None:
            self._received.put_nowait((channel, payload))


class _Jobs(JobManager):
    """Fetches the oldest job of the tenant that is next; none of tenants at their limit, none without a free slot."""

    def __init__(self, connector: procrastinate.PsycopgConnector, slots: TenantSlots) -> None:
        super().__init__(connector)
        self._slots = slots
        self.skipped = False  # whether a slot that becomes free could take a job that was left

    async def fetch_job(self, queues: Iterable[str] | None, worker_id: int) -> Job | None:
        while self._slots.any_free:
            at_limit = self._slots.at_limit
            self.skipped = bool(at_limit)
            values = {"order": self._slots.order, "at_limit": at_limit, "queues": queues, "worker_id": worker_id}
            rows = await self.connector.execute_query_all_async(_FETCH, **values)
            if rows:
                return Job.from_row(rows[0])
            if at_limit == self._slots.at_limit:  # else a slot became free during the query
                return None
        self.skipped = True
        return None


@asynccontextmanager
async def open_queue(url: str, hub: NotificationHub | None = None) -> AsyncGenerator[RunQueue]:
    """Yield a queue with its own connections. `url` must reach Postgres itself, not a transaction pooler.

    It listens through `hub` where that is given, else on its own connection.
    Fetching and finishing jobs need not be durable: a repeated job finds its run claimed or ended. Each is a single
    statement, so the connections are in autocommit mode.
    """
    connector = _Connector(
        pool_factory=_pool,
        conninfo=url,
        min_size=1,
        max_size=_POOL_SIZE,
        timeout=_POOL_SECONDS,
        kwargs={"connect_timeout": 5, "tcp_user_timeout": 10_000, "options": _SERVER_OPTIONS, **KEEPALIVE},
    )
    app = procrastinate.App(connector=connector)
    connector.hub = hub
    queue = RunQueue(app, connector)
    async with app.open_async():
        yield queue


async def _do_nothing(timestamp: int) -> None:
    del timestamp


def _end_if_cancelled(error: Exception) -> None:
    """Raise CancelledError again where a failure during shutdown has replaced it."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError from error


def _pool(**arguments: Any) -> AsyncConnectionPool[Any]:
    arguments["check"] = check_alive  # the default check sends a query each time
    arguments["configure"] = _without_transactions
    return AsyncConnectionPool(connection_class=BoundedConnection, **arguments)


async def _without_transactions(connection: AsyncConnection[Any]) -> None:
    await connection.set_autocommit(True)
