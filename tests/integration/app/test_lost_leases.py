"""A worker that loses the lease of a run and claims the run again."""

import asyncio
from collections import defaultdict

import pytest
from psycopg import AsyncConnection

from starling.app.worker.heartbeat import Heartbeat
from starling.app.worker.worker import RunHandlers, Worker
from starling.core.errors import RunUnwritableError
from starling.core.settings.schema import Limits
from starling.infra.postgres.engine import open_engine
from starling.infra.postgres.runs.acceptance import Claim, RunRepository
from starling.infra.postgres.runs.leases import LeaseRenewer, Leases
from tests.support.run_factories import new_run
from tests.support.run_queues import open_queue
from tests.support.worker_runtime import running_worker


async def test_end_of_a_lost_execution_does_not_release_the_next_one(database_url: str) -> None:
    began: defaultdict[int, asyncio.Event] = defaultdict(asyncio.Event)
    may_end: defaultdict[int, asyncio.Event] = defaultdict(asyncio.Event)
    ended: defaultdict[int, asyncio.Event] = defaultdict(asyncio.Event)

    async def execute(claim: Claim) -> None:
        began[claim.run.fence].set()
        try:
            await may_end[claim.run.fence].wait()
        finally:
            ended[claim.run.fence].set()

    engine = open_engine(database_url)
    async with open_queue(database_url) as queue:
        runs = RunRepository(engine, queue.defer, cap=8)
        leases = Leases(engine, queue.defer, runs.admit, graph_version=1)
        heartbeat = Heartbeat(LeaseRenewer(database_url, lease_seconds=60), 60, lambda _: None)
        work = RunHandlers(execute, execute, park=execute, drain=lambda: None)
        worker = Worker(queue, leases, heartbeat, work, Limits())
        async with running_worker(worker):
            await runs.accept(new_run())
            await began[1].wait()
            await expire_leases(database_url)
            await leases.sweep(grace_seconds=60, lease_seconds=60)
            await began[2].wait()
            may_end[1].set()
            await ended[1].wait()

        assert ended[2].is_set()
        assert await released(database_url)
    assert not worker._in_process  # pyright: ignore[reportPrivateUsage]
    await engine.dispose()


@pytest.mark.parametrize(
    "error",
    [RuntimeError("unexpected"), RunUnwritableError("It can't be written.")],
    ids=["broken", "unwritable"],
)
async def test_run_that_fails_each_execution_is_parked_by_its_only_worker(database_url: str, error: Exception) -> None:
    executed: defaultdict[int, asyncio.Event] = defaultdict(asyncio.Event)
    parked = asyncio.Event()

    async def execute(claim: Claim) -> None:
        executed[claim.run.fence].set()
        raise error

    async def park(claim: Claim) -> None:
        del claim
        parked.set()

    engine = open_engine(database_url)
    async with open_queue(database_url) as queue:
        runs = RunRepository(engine, queue.defer, cap=8)
        leases = Leases(engine, queue.defer, runs.admit, graph_version=1)
        heartbeat = Heartbeat(LeaseRenewer(database_url, lease_seconds=60), 60, lambda _: None)

        async def execute_alone(claim: Claim) -> None:
            await leases.begin_alone(claim.run)
            await execute(claim)

        work = RunHandlers(execute, execute_alone, park=park, drain=lambda: None)
        async with running_worker(Worker(queue, leases, heartbeat, work, Limits(crashes_per_run=1))):
            await runs.accept(new_run())
            for execution in (1, 2, 3):  # beside others, again, and alone
                await executed[execution].wait()
                await expire_leases(database_url)
                await leases.sweep(grace_seconds=60, lease_seconds=60)
            await parked.wait()

        assert not executed[4].is_set()
    await engine.dispose()


async def expire_leases(url: str) -> None:
    async with await AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute("UPDATE runs SET lease_until = now() - interval '1 second'")


async def released(url: str) -> bool:
    async with await AsyncConnection.connect(url) as connection:
        row = await (await connection.execute("SELECT lease_until IS NULL FROM runs")).fetchone()
    return bool(row and row[0])
