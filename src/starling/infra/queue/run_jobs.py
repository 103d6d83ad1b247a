"""Jobs of runs in procrastinate's tables, the slots of a worker, and the fetching of the job that is next."""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from operator import methodcaller
from random import uniform
from time import monotonic
from typing import Any, Final

import procrastinate
from procrastinate.connector import Notify
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import Job, Status
from procrastinate.manager import JobManager
from psycopg_pool import AsyncConnectionPool

from starling.core.outages import Outage
from starling.infra.postgres.availability import WRITES
from starling.infra.postgres.connections import BoundedConnection
from starling.infra.postgres.engine import address_of, beside_address, check_alive, first_line, options_before_address
from starling.infra.postgres.notifications import NotificationHub

QUEUE: Final = "runs"  # its name, and the part of an outage that is over when it can be fetched from
_REMEMBERED = 1_000  # tenants whose last start is known; the others count as never served


class TenantSlots:
    """Counts the slots that runs take, of each tenant and of all.

    The next run is that of the tenant with the fewest runs here; among equals, of the one served least recently.
    """

    def __init__(self) -> None:
        self._total = self._per_tenant = self._isolated = 0
        self._used_isolated = 0
        self._used: Counter[str] = Counter()
        self._served: OrderedDict[str, None] = OrderedDict()  # least recently first

    def resize(self, total: int, per_tenant: int, isolated: int) -> None:
        """Offer `total` slots, at most `per_tenant` of them to one tenant, and `isolated` to suspected runs."""
        self._total, self._per_tenant, self._isolated = total, per_tenant, isolated

    @property
    def any_free(self) -> bool:
        return self._used.total() < self._total

    def is_free(self, tenant: str) -> bool:
        """Return whether a run of this tenant may start."""
        return self.any_free and self._used[tenant] < self._per_tenant

    def take(self, tenant: str) -> None:
        """Count one more run of the tenant, even beyond its share: it was fetched already."""
        self._used[tenant] += 1
        self._served[tenant] = None
        self._served.move_to_end(tenant)
        if len(self._served) > _REMEMBERED:
            self._served.popitem(last=False)

    def release(self, tenant: str) -> None:
        """Count one run less."""
        self._used -= Counter({tenant: 1})  # Counter subtraction drops entries that reach zero

    @property
    def isolated_free(self) -> bool:
        """Whether a suspected run may start."""
        return self._used_isolated < self._isolated

    def take_isolated(self) -> bool:
        """Count one more suspected run; return False, and count nothing, where there are enough."""
        if not self.isolated_free:
            return False
        self._used_isolated += 1
        return True

    def release_isolated(self) -> None:
        """Count one suspected run less."""
        self._used_isolated -= 1

    @property
    def at_limit(self) -> Collection[str]:
        """The tenants that get no further slot now."""
        return [tenant for tenant, used in self._used.items() if used >= self._per_tenant]

    @property
    def order(self) -> Sequence[str]:
        """The tenants served so far, the one that is next first. Tenants that are missing come before all of them."""
        return sorted(self._served, key=self._used.__getitem__)  # stable: equals stay as they were served


_POOL_SIZE = 3
_POOL_SECONDS = 5.0
_JOB_NOTIFICATION = '{"type": "job_inserted", "job_id": 0}'  # the payload that procrastinate sends; no job has the id 0
_SERVER_OPTIONS = "-c synchronous_commit=off -c statement_timeout=30s -c lock_timeout=10s"

# The oldest job of the tenant that is next. In place of procrastinate_fetch_job_v2, which goes by priority and age;
# no job of ours has a `lock`.
_FETCH_JOB = """
UPDATE procrastinate_jobs SET status = 'doing', worker_id = %(worker_id)s
WHERE id = (
    SELECT jobs.id FROM procrastinate_jobs AS jobs
    LEFT JOIN unnest(%(order)s::text[]) WITH ORDINALITY AS served (tenant, place) ON served.tenant = args ->> 'tenant'
    WHERE status = 'todo' AND queue_name = ANY(%(queues)s::text[]) AND (scheduled_at IS NULL OR scheduled_at <= now())
        AND coalesce(args ->> 'tenant', '') <> ALL(%(at_limit)s::text[]){unsuspected}
    ORDER BY served.place NULLS FIRST, jobs.id LIMIT 1
    FOR UPDATE OF jobs SKIP LOCKED)
RETURNING *"""

# A run whose process ended twice needs a process of its own (see `leases`); its job waits until one may start.
_UNSUSPECTED = """
        AND NOT EXISTS (
            SELECT FROM runs WHERE runs.tenant = args ->> 'tenant' AND runs.id = (args ->> 'run_id')::uuid
            AND (runs.isolation IN ('due', 'alone') OR (runs.isolation = 'lost' AND runs.status = 'running')))"""
_FETCH = _FETCH_JOB.format(unsuspected="")
_FETCH_UNSUSPECTED = _FETCH_JOB.format(unsuspected=_UNSUSPECTED)


class JobConnector(procrastinate.PsycopgConnector):
    """Stores and fetches jobs, and listens through the notification hub of the process.

    Fetching and finishing jobs need not be durable: a repeated job finds its run claimed or ended. Each is a single
    statement, so the connections are in autocommit mode.
    """

    def __init__(self, url: str, hub: NotificationHub) -> None:
        super().__init__(
            pool_factory=_pool,
            conninfo=address_of(url),
            min_size=1,
            max_size=_POOL_SIZE,
            timeout=_POOL_SECONDS,
            kwargs={
                "options": options_before_address(url, _SERVER_OPTIONS),
                **beside_address(url, application_name="starling-queue", connect_timeout=5, tcp_user_timeout=10_000),
            },
        )
        self.hub = hub
        self.notified = 0  # how often the worker was told to fetch
        self._received: asyncio.Queue[tuple[str, str]] | None = None

    def trigger_fetch(self) -> None:
        """Make the worker fetch a job now, as after a notification."""
        self._receive("", _JOB_NOTIFICATION)

    async def listen_notify(self, on_notification: Notify, channels: Iterable[str]) -> None:
        self._received = asyncio.Queue()
        with ExitStack() as stack:
            for channel in channels:
                stack.enter_context(self.hub.subscribed(channel, partial(self._receive, channel), self.trigger_fetch))
            while True:
                channel, payload = await self._received.get()
                await on_notification(channel=channel, payload=payload)

    def _receive(self, channel: str, payload: str) -> None:
        self.notified += 1
        if self._received is not None:
            self._received.put_nowait((channel, payload))


def _pool(**arguments: Any) -> AsyncConnectionPool[Any]:
    arguments["check"] = check_alive  # the default check sends a query each time
    arguments["configure"] = methodcaller("set_autocommit", True)
    return AsyncConnectionPool(connection_class=BoundedConnection, **arguments)


class FairJobs(JobManager):
    """Fetches the oldest job of the tenant that is next; none of tenants at their limit, none without a free slot.

    After a fetch without a job the next waits for its turn among all workers: one job wakes all of them.

    The worker forgets what it was notified of when a fetch returns. So one that found nothing is repeated where a
    notification came meanwhile: it may be of a job that the query couldn't see.
    """

    def __init__(self, connector: JobConnector, slots: TenantSlots, outage: Outage) -> None:
        super().__init__(connector)
        self._connector = connector
        self._slots = slots
        self._outage = outage
        self.pace = FetchPace(lambda: connector.hub.peers, monotonic)
        self.skipped = False  # whether a slot that becomes free could take a job that was left

    async def fetch_job(self, queues: Iterable[str] | None, worker_id: int) -> Job | None:
        while self._slots.any_free:
            await self.pace.turn()
            if not self._slots.any_free:
                break
            at_limit, notified = self._slots.at_limit, self._connector.notified
            self.skipped = bool(at_limit)
            values = {"order": self._slots.order, "at_limit": at_limit, "queues": queues, "worker_id": worker_id}
            statement = _FETCH if self._slots.isolated_free else _FETCH_UNSUSPECTED
            rows = await self._connector.execute_query_all_async(statement, **values)
            self._outage.recovered(QUEUE)  # not WRITES: a fetch without a job writes nothing
            if rows:
                return Job.from_row(rows[0])
            self.pace.found_nothing()
            if (at_limit, notified) == (self._slots.at_limit, self._connector.notified):
                return None  # else a slot became free during the query, or a job was queued
        self.skipped = True
        return None

    async def finish_job(self, job: Job, status: Status, delete_job: bool) -> None:
        """Delete a job. If Postgres can't, it stays, without effect, until the sweep after this worker's end."""
        try:
            await super().finish_job(job, status, delete_job)
        except ConnectorException as error:  # nobody awaits the task of a job
            self._outage.failed(first_line(error.__cause__ or error), WRITES)

    def fetch(self) -> None:
        """Fetch now."""
        self.pace.reset()
        self._connector.trigger_fetch()

    def fetch_skipped(self) -> None:
        """Fetch now, if a job was left for want of a slot."""
        if self.skipped:
            self.skipped = False
            self.fetch()


_SECONDS_PER_PROCESS: Final = 0.002
_LONGEST_SECONDS: Final = 0.5


class FetchPace:
    """Spaces out fetches after one that found no job.

    Up to 250 processes together make about 500 such fetches a second at most, and a new job waits about 2 ms for the
    first of them. Of more, each waits half a second at most: 1,000 make 2,000 a second.
    """

    def __init__(self, processes: Callable[[], int], now: Callable[[], float]) -> None:
        """`processes` returns how many others listen; `now` the time in seconds."""
        self._processes = processes
        self._now = now
        self._earliest = 0.0
        self._reset = asyncio.Event()

    @property
    def pause(self) -> float:
        """Return how long to wait before the next fetch, in seconds."""
        return max(0.0, self._earliest - self._now())

    def found_nothing(self) -> None:
        """Note that a fetch has ended without a job."""
        seconds = self._processes() * _SECONDS_PER_PROCESS * uniform(0.5, 1.5)  # noqa: S311 - only spreads them
        self._earliest = self._now() + min(seconds, _LONGEST_SECONDS)

    def reset(self) -> None:
        """Let the next fetch happen at once, also one that waits for its turn."""
        self._earliest = 0.0
        self._reset.set()

    async def turn(self) -> None:
        """Wait until the next fetch may happen."""
        while (pause := self.pause) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._reset.wait()
            self._reset.clear()
