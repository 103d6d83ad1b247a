"""A run that its own process can work on goes there without the queue; what does not fit goes through the queue."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from psycopg import AsyncConnection
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.infra.postgres.notifications import open_hub
from starling.infra.postgres.runs.acceptance import RunKey, RunRepository
from starling.infra.queue.run_queue import RunQueue, open_queue
from tests.support.run_factories import new_run

SECONDS = 30


@dataclass
class Hands:
    """A worker's handler that keeps each run until it may end."""

    taken: asyncio.Queue[RunKey] = field(default_factory=asyncio.Queue[RunKey])
    may_end: asyncio.Event = field(default_factory=asyncio.Event)

    async def take(self, key: RunKey) -> None:
        self.taken.put_nowait(key)
        await self.may_end.wait()


async def test_an_accepted_run_goes_to_the_free_worker_of_its_process_without_a_job(
    database_url: str, engine: AsyncEngine
) -> None:
    hands, new = Hands(), new_run()
    async with asyncio.timeout(SECONDS), working(database_url, hands, slots=1) as queue:
        await RunRepository(engine, queue.defer, cap=8, local=queue).accept(new)

        assert await hands.taken.get() == new.key
        assert await jobs(database_url) == 0
        hands.may_end.set()


async def test_a_run_for_which_no_slot_is_free_waits_in_the_queue(database_url: str, engine: AsyncEngine) -> None:
    hands, first, second = Hands(), new_run(thread="a"), new_run(thread="b")
    async with asyncio.timeout(SECONDS), working(database_url, hands, slots=1) as queue:
        runs = RunRepository(engine, queue.defer, cap=8, local=queue)
        await runs.accept(first)
        await runs.accept(second)
        await hands.taken.get()
        assert await jobs(database_url) == 1
        hands.may_end.set()

        assert await hands.taken.get() == second.key


async def test_a_process_without_a_worker_queues_what_it_accepts(database_url: str, engine: AsyncEngine) -> None:
    async with open_queue(database_url) as queue:
        await RunRepository(engine, queue.defer, cap=8, local=queue).accept(new_run())

        assert await jobs(database_url) == 1


@asynccontextmanager
async def working(url: str, hands: Hands, *, slots: int) -> AsyncGenerator[RunQueue]:
    async with open_hub(url) as hub, open_queue(url, hub) as queue:
        task = asyncio.get_running_loop().create_task(queue.work(hands.take, concurrency=slots))
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
