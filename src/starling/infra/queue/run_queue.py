"""Jobs that say which run may be claimed, and the periodic sweep. The run row decides who owns a run, not the job."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import procrastinate
from procrastinate.exceptions import ConnectorException, ProcrastinateException
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from starling.infra.postgres.engine import check_alive
from starling.infra.postgres.runs.acceptance import Connection, RunKey
from starling.infra.postgres.timeouts import KEEPALIVE, BoundedConnection

type Handler = Callable[[RunKey], Awaitable[None]]
type Sweep = Callable[[], Awaitable[None]]

QUEUE = "runs"
_SWEEP = "starling.sweep"
_SWEEP_CRON = "* * * * * */5"  # every five seconds: the sixth field counts them
_FETCH_SECONDS = 5.0
_ABORT_SECONDS = 1.0
_RESTART_SECONDS = 0.5
_POOL_SIZE = 3
_POOL_SECONDS = 5.0
_OPTIONS = "-c synchronous_commit=off -c statement_timeout=30s -c lock_timeout=10s"

_log = logging.getLogger(__name__)


class RunQueue:
    """Defers jobs in the caller's transaction and works on them until it is cancelled."""

    def __init__(self, app: procrastinate.App) -> None:
        self._app = app
        self._handler: Handler | None = None
        self._sweep: Sweep | None = None
        self._task = app.task(name="starling.run", queue=QUEUE)(self._run)
        swept = app.task(name=_SWEEP, queue=QUEUE, queueing_lock=_SWEEP, priority=1)  # before runs that stand in line
        sweep = swept(self._sweep_once)
        app.periodic(cron=_SWEEP_CRON)(sweep)

    async def defer(self, connection: Connection, keys: Sequence[RunKey]) -> None:
        """Queue these runs when the transaction of `connection` commits. One waiting job a run at most.

        Raises the driver's own errors, as every other statement of that transaction does.
        """
        for key in keys:
            job = self._task.configure(connection=connection, queueing_lock=key.id)
            try:
                await job.defer_async(tenant=key.tenant, run_id=key.id)
            except ConnectorException as error:
                raise error.__cause__ or error from None

    async def work(self, handler: Handler, sweep: Sweep, *, concurrency: int) -> None:
        """Hand jobs to `handler` for ever, `concurrency` at a time; begin again whenever Postgres was away."""
        self._handler, self._sweep = handler, sweep
        while True:
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
                _log.warning("the queue can't be reached: %s", error)
            await asyncio.sleep(_RESTART_SECONDS)

    async def _run(self, *, tenant: str, run_id: str) -> None:
        assert self._handler is not None
        await self._handler(RunKey(tenant, run_id))

    async def _sweep_once(self, timestamp: int) -> None:
        del timestamp
        assert self._sweep is not None
        await self._sweep()


@asynccontextmanager
async def open_queue(url: str) -> AsyncGenerator[RunQueue]:
    """Yield a queue over connections of its own. `url` must reach Postgres itself, not a transaction pooler.

    Fetching and finishing jobs needn't be durable: a job that comes again finds its run claimed, or ended. Each is one
    statement, which needs no BEGIN and COMMIT around it.
    """
    connector = procrastinate.PsycopgConnector(
        pool_factory=_pool,
        conninfo=url,
        min_size=1,
        max_size=_POOL_SIZE,
        timeout=_POOL_SECONDS,
        kwargs={"connect_timeout": 5, "tcp_user_timeout": 10_000, "options": _OPTIONS, **KEEPALIVE},
    )
    app = procrastinate.App(connector=connector)
    queue = RunQueue(app)
    async with app.open_async():
        yield queue


def _end_if_cancelled(error: Exception) -> None:
    """A failure on the way out takes the place of the cancellation that asked for it: raise that again."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError from error


def _pool(**arguments: Any) -> AsyncConnectionPool[Any]:
    arguments["check"] = check_alive  # theirs asks the server each time
    arguments["configure"] = _without_transactions
    return AsyncConnectionPool(connection_class=BoundedConnection, **arguments)


async def _without_transactions(connection: AsyncConnection[Any]) -> None:
    await connection.set_autocommit(True)
