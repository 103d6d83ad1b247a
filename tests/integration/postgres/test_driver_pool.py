"""Connections that the driver uses without SQLAlchemy: kept, given back where they are needed, replaced if closed."""

import asyncio
import gc
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import psycopg
import pytest
from psycopg import waiting
from psycopg.errors import DivisionByZero
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from starling.infra.postgres.connections import DriverPool
from starling.infra.postgres.engine import (
    ConnectionLimits,
    autocommit,
    changing,
    connected,
    driver,
    execute_autocommit,
    open_engine,
    pipelined_transaction,
    reading,
)
from tests.support.gateway_harness import wait_for

_PID = "SELECT pg_backend_pid()"


async def _direct(engine: AsyncEngine, statement: str = _PID) -> object:
    row = await execute_autocommit(engine, statement, {})
    return row and row[0]


async def test_second_direct_use_takes_the_kept_connection_without_a_checkout(engine: AsyncEngine) -> None:
    first = await _direct(engine)

    assert engine.pool.status().split("Connections in pool: ")[1][0] == "0"
    assert await _direct(engine) == first


async def test_kept_connection_is_used_by_sqlalchemy_in_a_transaction_before_another_is_opened(
    engine: AsyncEngine,
) -> None:
    kept = await _direct(engine)

    async with engine.connect() as connection:
        assert (await connection.execute(text(_PID))).scalar_one() == kept
        assert not (await driver(connection)).autocommit
    assert await _direct(engine) == kept


async def test_connections_released_together_go_to_all_that_wait(database_url: str) -> None:
    engine, both = open_engine(database_url, ConnectionLimits(size=2, free_seconds=60)), asyncio.Barrier(2)
    pool, done = engine.pool, asyncio.Event()
    assert isinstance(pool, DriverPool)

    async def use_directly() -> None:
        async with pool.autocommit():
            await done.wait()

    async def use_together() -> None:
        async with engine.connect():
            await both.wait()

    async with asyncio.TaskGroup() as group:
        for _ in range(2):
            group.create_task(use_directly())
        await wait_for(lambda: pool.checkedout() == 2)
        for _ in range(2):
            group.create_task(use_together())
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # both wait for a connection now
        done.set()
    await engine.dispose()


async def test_kept_connection_that_the_server_closed_is_replaced(engine: AsyncEngine, database_url: str) -> None:
    kept = await _direct(engine)
    with psycopg.connect(database_url, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", [kept])

    assert await _direct(engine) != kept


async def test_checkout_cancelled_while_it_resets_the_kept_connection_leaves_none_checked_out(
    database_url: str,
) -> None:
    engine = open_engine(database_url, ConnectionLimits(size=1, free_seconds=0.2))
    kept = await _direct(engine)
    gc.disable()  # else it may return the connection
    try:
        checkout = asyncio.get_running_loop().create_task(engine.raw_connection())
        await asyncio.sleep(0)  # it waits for the answer to RESET now
        checkout.cancel()
        await asyncio.gather(checkout, return_exceptions=True)

        assert await _direct(engine) != kept
    finally:
        gc.enable()
        await engine.dispose()


@pytest.mark.parametrize("use", [autocommit, changing, reading], ids=lambda use: use.__name__)
async def test_use_that_is_cancelled_at_any_step_leaves_no_connection_checked_out_or_in_autocommit_mode(
    use: Callable[[AsyncEngine], AbstractAsyncContextManager[AsyncConnection]],
    engine: AsyncEngine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waiting, "MAX_BUSY_TIME", 0.0)  # so psycopg has others run in each of its steps
    pool, loop, steps, finished = engine.pool, asyncio.get_running_loop(), 0, False
    assert isinstance(pool, DriverPool)

    async def used() -> None:
        async with use(engine) as connection:
            await connection.execute(text(_PID))

    await used()  # without what SQLAlchemy asks of its first connection
    gc.disable()  # else it may return a connection
    try:
        while not finished:
            task = loop.create_task(used())
            for _ in range(steps):
                await asyncio.sleep(0)
            finished, steps = task.done(), steps + 1
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

            assert pool.checkedout() == 0
            async with engine.connect() as connection:
                assert not (await driver(connection)).autocommit
    finally:
        gc.enable()
    assert steps > 3


async def test_connection_outside_the_pool_is_closed_also_by_a_task_that_is_cancelled_at_its_end(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "MAX_BUSY_TIME", 0.0)
    used: list[psycopg.AsyncConnection] = []

    async def use() -> None:
        task = asyncio.current_task()
        assert task
        async with connected(database_url) as connection:
            used.append(connection)
            task.cancel()

    await asyncio.gather(asyncio.get_running_loop().create_task(use()), return_exceptions=True)

    assert used[0].closed


async def test_connection_is_closed_after_an_error(engine: AsyncEngine) -> None:
    kept = await _direct(engine)
    with pytest.raises(DivisionByZero):
        await _direct(engine, "SELECT 1 / 0")

    assert await _direct(engine) != kept


def test_use_that_fails_as_the_loop_ends_closes_its_connection(database_url: str) -> None:
    used: list[psycopg.AsyncConnection] = []

    async def main() -> None:
        begun, end, pool = asyncio.Event(), asyncio.Event(), open_engine(database_url).pool
        assert isinstance(pool, DriverPool)

        async def use() -> None:
            async with pool.autocommit() as connection:
                used.append(connection)
                begun.set()
                await end.wait()
                raise asyncio.CancelledError

        using = asyncio.get_running_loop().create_task(use())
        await begun.wait()
        end.set()
        assert not using.done()

    asyncio.run(main())

    assert used[0].closed


async def test_dispose_closes_kept_connections(database_url: str) -> None:
    engine = open_engine(database_url)
    kept = await _direct(engine)
    await engine.dispose()

    async with connected(database_url) as other:
        query = "SELECT pg_sleep(0.01), (SELECT count(*) FROM pg_stat_activity WHERE pid = %s)"
        async with asyncio.timeout(60):
            while (await (await other.execute(query, [kept])).fetchone())[1]:  # pyright: ignore[reportOptionalSubscript]
                pass


async def _insert(engine: AsyncEngine, then: str = "", error: type[BaseException] | None = None) -> None:
    async with pipelined_transaction(engine) as connection:
        inserted = await connection.execute("INSERT INTO threads (tenant, id) VALUES ('x', '1') RETURNING id")
        if then:
            await connection.execute(then.encode())
        else:
            assert await inserted.fetchone() == ("1",)
        if error:
            raise error


@pytest.mark.parametrize(
    ("then", "error", "raised"),
    [
        ("", KeyError, KeyError),
        ("", asyncio.CancelledError, asyncio.CancelledError),
        ("SELECT 1 / 0", None, DivisionByZero),
    ],
    ids=["error", "cancelled", "statement that nothing is fetched from"],
)
async def test_pipelined_transaction_that_fails_writes_nothing(
    engine: AsyncEngine, then: str, error: type[BaseException] | None, raised: type[BaseException]
) -> None:
    with pytest.raises(raised):
        await _insert(engine, then, error)
    assert await _direct(engine, "SELECT count(*) FROM threads") == 0

    await _insert(engine)
    assert await _direct(engine, "SELECT count(*) FROM threads") == 1


async def test_connection_in_use_while_the_pool_is_closed_is_closed_after_its_use(engine: AsyncEngine) -> None:
    pool = engine.pool
    assert isinstance(pool, DriverPool)
    async with pool.autocommit() as connection:
        await engine.dispose()

        assert not connection.closed
    assert connection.closed
