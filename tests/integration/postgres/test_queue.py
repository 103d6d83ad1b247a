"""The queue recovers after Postgres was unavailable, in each state of its connections."""

import asyncio

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.core.errors import DatabaseUnavailableError
from starling.infra.postgres.engine import transaction, translated
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.queue.run_queue import RunQueue, open_queue
from tests.support.postgres_faults import terminate_backends
from tests.support.run_factories import new_run
from tests.support.tcp_proxy import proxied


async def test_terminated_idle_connection_is_replaced(database_url: str, engine: AsyncEngine) -> None:
    taken = asyncio.Event()

    async def take(_: RunKey) -> None:
        taken.set()

    async with open_queue(database_url) as queue:
        await terminate_backends(database_url)
        async with transaction(engine) as connection:
            await queue.defer(connection, [new_run().key])
        working = asyncio.get_running_loop().create_task(queue.work(take, concurrency=1, per_tenant=1))

        await asyncio.wait_for(taken.wait(), 30)

        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


async def test_lost_connection_during_defer_raises_database_unavailable(database_url: str, engine: AsyncEngine) -> None:
    async def write(queue: RunQueue) -> None:
        with translated():
            async with transaction(engine) as connection:
                await connection.execute("SELECT 1")
                await terminate_backends(database_url)
                await queue.defer(connection, [new_run().key])

    async with open_queue(database_url) as queue:
        with pytest.raises(DatabaseUnavailableError):
            await write(queue)


async def test_work_cancelled_while_postgres_is_unavailable_ends(database_url: str, engine: AsyncEngine) -> None:
    taken = asyncio.Event()

    async def take(_: RunKey) -> None:
        taken.set()

    async with proxied(database_url) as database, open_queue(database.url) as queue:
        working = asyncio.get_running_loop().create_task(queue.work(take, concurrency=1, per_tenant=1))
        async with transaction(engine) as connection:
            await queue.defer(connection, [new_run().key])
        await asyncio.wait_for(taken.wait(), 30)
        await database.proxy.stop()

        working.cancel()
        done, _ = await asyncio.wait({working}, timeout=30)

        assert done
        assert working.cancelled()
