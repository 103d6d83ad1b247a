"""The queue recovers after Postgres was unavailable, in each state of its connections."""

import asyncio
import gc
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from time import monotonic
from typing import Any

import pytest
from procrastinate import PsycopgConnector
from psycopg import AsyncConnection
from sqlalchemy import make_url
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.core.errors import DatabaseUnavailableError
from starling.infra.postgres.availability import WriteCheck
from starling.infra.postgres.engine import transaction, translated
from starling.infra.postgres.notifications import open_hub
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.queue import run_jobs, run_queue
from starling.infra.queue.run_queue import RunQueue
from tests.support.gateway_harness import wait_for
from tests.support.postgres_faults import terminate_backends
from tests.support.run_factories import new_run
from tests.support.run_queues import open_queue
from tests.support.tcp_proxy import proxied

_FULL_DISK = b"""
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100';
END $$;
CREATE TRIGGER refuse BEFORE DELETE ON procrastinate_jobs FOR EACH ROW EXECUTE FUNCTION refuse()"""
WAKE = b'SELECT pg_notify(\'procrastinate_queue_v1#runs\', \'{"type": "job_inserted", "job_id": 0}\')'


@asynccontextmanager
async def listening_process(url: str) -> AsyncGenerator[None]:
    """Be counted as another process that listens."""
    async with await AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(b"SELECT pg_advisory_lock_shared(1400140146, 1)")
        yield


async def test_terminated_idle_connection_is_replaced(database_url: str, engine: AsyncEngine) -> None:
    taken = asyncio.Event()

    async def take(_: RunKey) -> None:
        taken.set()

    async with open_queue(database_url) as queue:
        await terminate_backends(database_url)
        async with transaction(engine) as connection:
            await queue.defer(connection, [new_run().key])
        working = asyncio.get_running_loop().create_task(queue.work(take, concurrency=1, per_tenant=1, isolated=1))

        await asyncio.wait_for(taken.wait(), 60)

        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


async def test_connections_of_the_queue_have_a_name_and_the_options_of_the_address(database_url: str) -> None:
    url = make_url(database_url).update_query_dict({"options": "-c track_activities=off"})
    query = """
        SELECT DISTINCT state FROM pg_stat_activity WHERE application_name = 'starling-queue' AND state <> 'starting'
    """
    states: list[Any] = []
    async with (
        open_queue(url.render_as_string(hide_password=False)) as queue,
        await AsyncConnection.connect(database_url, autocommit=True) as other,
    ):
        working = asyncio.get_running_loop().create_task(queue.work(_ignore, concurrency=1, per_tenant=1, isolated=1))
        while not states:
            states = await (await other.execute(query)).fetchall()
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)

    assert states == [("disabled",)]


async def _ignore(_: RunKey) -> None:
    pass


async def test_job_queued_while_a_fetch_returns_without_it_does_not_wait_for_the_next_poll(
    database_url: str, engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_queue, "_FETCH_SECONDS", 600)
    execute, taken = PsycopgConnector.execute_query_all_async, asyncio.Event()
    jobs = [new_run().key]

    async def take(_: RunKey) -> None:
        taken.set()

    async def queued_meanwhile(connector: Any, query: Any, **arguments: Any) -> Any:
        rows = await execute(connector, query, **arguments)
        if "order" in arguments and connector.notified and jobs:  # a fetch, by a worker that listens
            before = connector.notified
            async with transaction(engine) as connection:
                await queue.defer(connection, [jobs.pop()])
            await wait_for(lambda: connector.notified > before)
        return rows

    async with open_queue(database_url) as queue:
        monkeypatch.setattr(PsycopgConnector, "execute_query_all_async", queued_meanwhile)
        working = asyncio.get_running_loop().create_task(queue.work(take, concurrency=1, per_tenant=1, isolated=1))

        await asyncio.wait_for(taken.wait(), 60)  # it would poll later

        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


async def test_workers_that_are_woken_together_fetch_in_turns(
    database_url: str, engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_queue, "_FETCH_SECONDS", 600)
    execute, fetches, taken = PsycopgConnector.execute_query_all_async, list[Any](), asyncio.Event()

    async def counted(connector: Any, query: Any, **arguments: Any) -> Any:
        fetches.extend([connector] if "order" in arguments else [])
        return await execute(connector, query, **arguments)

    async def take(_: RunKey) -> None:
        taken.set()

    async with AsyncExitStack() as stack, asyncio.timeout(60):
        for _ in range(40):
            await stack.enter_async_context(listening_process(database_url))
        hub = await stack.enter_async_context(open_hub(database_url))
        await wait_for(lambda: hub.peers == 40)
        queue = RunQueue(database_url, hub)
        monkeypatch.setattr(PsycopgConnector, "execute_query_all_async", counted)
        working = asyncio.get_running_loop().create_task(queue.work(take, concurrency=1, per_tenant=1, isolated=1))
        await wait_for(lambda: bool(fetches) and fetches[0].notified > 0)  # once it listens
        before, begun = len(fetches), monotonic()
        async with AsyncExitStack() as connections:
            waker = await connections.enter_async_context(await AsyncConnection.connect(database_url, autocommit=True))
            for _ in range(50):
                await waker.execute(WAKE)
                await waker.execute(b"SELECT pg_sleep(0.005)")  # longer than a fetch, which would end by then
        woken, seconds = len(fetches) - before, monotonic() - begun

        async with transaction(engine) as connection:
            await queue.defer(connection, [new_run().key])
        await asyncio.wait_for(taken.wait(), 60)  # it would poll later

        working.cancel()
        await asyncio.gather(working, return_exceptions=True)

    assert woken <= seconds / 0.04 + 2  # with 40 others a turn takes 40 ms at least


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


async def test_work_cancelled_while_postgres_is_unavailable_ends(
    database_url: str, engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_jobs, "_POOL_SECONDS", 1)
    taken = asyncio.Event()

    async def take(_: RunKey) -> None:
        taken.set()

    async with proxied(database_url) as database, open_queue(database.url) as queue:
        working = asyncio.get_running_loop().create_task(queue.work(take, concurrency=1, per_tenant=1, isolated=1))
        async with transaction(engine) as connection:
            await queue.defer(connection, [new_run().key])
        await asyncio.wait_for(taken.wait(), 60)
        await database.proxy.stop()

        working.cancel()
        done, _ = await asyncio.wait({working}, timeout=60)

        assert done
        assert working.cancelled()


async def test_job_that_a_full_disk_lets_nobody_finish_is_an_outage_until_a_check_and_no_lost_exception(
    database_url: str, engine: AsyncEngine, caplog: pytest.LogCaptureFixture
) -> None:
    writes, taken = WriteCheck(engine), list[RunKey]()

    async def take(key: RunKey) -> None:
        taken.append(key)
        if len(taken) == 1:
            async with await AsyncConnection.connect(database_url, autocommit=True) as connection:
                await connection.execute(_FULL_DISK)

    async def defer_one() -> None:
        async with transaction(engine) as connection:
            await queue.defer(connection, [new_run().key])

    async with open_hub(database_url) as hub:
        queue = RunQueue(database_url, hub, writes.outage)
        await writes.check()
        working = asyncio.get_running_loop().create_task(queue.work(take, concurrency=1, per_tenant=1, isolated=1))
        await defer_one()
        await wait_for(lambda: bool(caplog.records))
        await defer_one()
        await wait_for(lambda: len(taken) > 1)  # a fetch was answered, which ends no failure to write
        lasted = writes.outage.lasts
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        await writes.check()  # though it is no second since the last one
        gc.collect()

    assert "could not extend file" in caplog.records[0].message
    assert (lasted, writes.outage.lasts) == (True, False)
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []
