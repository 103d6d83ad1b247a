"""An accepted run starts in the local worker if a slot is free, and is queued otherwise."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from psycopg import AsyncConnection
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.infra.postgres.runs.acceptance import RunKey, RunRepository
from starling.infra.queue.run_queue import RunQueue
from tests.support.run_factories import new_run
from tests.support.run_queues import open_queue

SECONDS = 60


@dataclass
class HeldRuns:
    """A handler that holds each run until `may_end` is set."""

    taken: asyncio.Queue[RunKey] = field(default_factory=asyncio.Queue[RunKey])
    may_end: asyncio.Event = field(default_factory=asyncio.Event)

    async def take(self, key: RunKey) -> None:
        self.taken.put_nowait(key)
        await self.may_end.wait()


async def test_accepted_run_starts_in_the_free_local_worker_without_a_job(
    database_url: str, engine: AsyncEngine
) -> None:
    held, new = HeldRuns(), new_run()
    async with asyncio.timeout(SECONDS), working_queue(database_url, held, slots=1) as queue:
        await RunRepository(engine, queue.defer, cap=8, local=queue).accept(new)

        assert await held.taken.get() == new.key
        assert await jobs(database_url) == 0
        held.may_end.set()


async def test_accepted_run_is_queued_when_no_slot_is_free(database_url: str, engine: AsyncEngine) -> None:
    held, first, second = HeldRuns(), new_run(thread="a"), new_run(thread="b")
    async with asyncio.timeout(SECONDS), working_queue(database_url, held, slots=1) as queue:
        runs = RunRepository(engine, queue.defer, cap=8, local=queue)
        await runs.accept(first)
        await runs.accept(second)
        await held.taken.get()
        assert await jobs(database_url) == 1
        held.may_end.set()

        assert await held.taken.get() == second.key


async def test_process_without_a_worker_queues_accepted_runs(database_url: str, engine: AsyncEngine) -> None:
    async with open_queue(database_url) as queue:
        await RunRepository(engine, queue.defer, cap=8, local=queue).accept(new_run())

        assert await jobs(database_url) == 1


@asynccontextmanager
async def working_queue(url: str, held: HeldRuns, *, slots: int) -> AsyncGenerator[RunQueue]:
    async with open_queue(url) as queue:
        task = asyncio.get_running_loop().create_task(
            queue.work(held.take, concurrency=slots, per_tenant=slots, isolated=1)
        )
        await asyncio.sleep(0)  # it has slots from its first step on
        try:
            yield queue
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def jobs(url: str) -> int:
    async with await AsyncConnection.connect(url, autocommit=True) as connection:
        cursor = await connection.execute(
            "SELECT count(*) FROM procrastinate_jobs WHERE task_name = 'starling.run' AND status = 'todo'"
        )
        row = await cursor.fetchone()
    assert row is not None
    return row[0]
