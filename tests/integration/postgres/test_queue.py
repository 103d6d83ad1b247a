"""The queue heals when Postgres was away, whatever its connections did at that moment."""

import asyncio

import psycopg
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.infra.postgres.engine import transaction
from starling.infra.postgres.runs import RunKey
from starling.infra.queue.runs import open_queue
from tests.support.runs import a_run

_OTHERS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = %s"


async def test_an_idle_connection_that_was_terminated_is_replaced(database_url: str, engine: AsyncEngine) -> None:
    taken = asyncio.Event()

    async def take(_: RunKey) -> None:
        taken.set()

    async def sweep() -> None:
        pass

    async with open_queue(database_url) as queue:
        async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
            await connection.execute(_OTHERS, [connection.info.dbname])
        async with transaction(engine) as connection:
            await queue.defer(connection, [a_run().key])
        working = asyncio.get_running_loop().create_task(queue.work(take, sweep, concurrency=1))

        await asyncio.wait_for(taken.wait(), 30)

        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
