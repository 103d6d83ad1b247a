"""The engine: bounded waits, clear errors, and connections that heal."""

import asyncio
import gc
import select
import socket
from typing import Any

import psycopg
import pytest
from psycopg import errors
from sqlalchemy import event, make_url, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.core.errors import DatabaseUnavailableError
from starling.infra.postgres.embedded.server import EmbeddedPostgres
from starling.infra.postgres.engine import ConnectionLimits, connected, driver, open_engine, transaction, translated
from tests.support.postgres_faults import frozen

SECRET = "s3cret-of-the-test"


async def _answer(engine: AsyncEngine) -> int:
    async with engine.connect() as connection:
        return (await connection.execute(text("SELECT 42"))).scalar_one()


async def test_sessions_carry_their_limits(engine: AsyncEngine) -> None:
    async with engine.connect() as connection:
        query = text("SELECT current_setting('statement_timeout'), current_setting('lock_timeout')")
        row = (await connection.execute(query)).one()

    assert tuple(row) == ("30s", "10s")


async def test_transactions_behind_a_pooler_have_the_limits(database_url: str) -> None:
    engine = open_engine(database_url, ConnectionLimits(behind_pooler=True, statement_seconds=7))
    async with engine.begin() as connection:
        inside = (await connection.execute(text("SHOW statement_timeout"))).scalar_one()
        raw = await driver(connection)
        cursor = await raw.execute("SELECT setting FROM pg_settings WHERE name = 'statement_timeout'")
        prepared = raw.prepare_threshold
        assert await cursor.fetchone() == ("7000",)
    async with connected(database_url) as session:
        outside = await (await session.execute("SHOW statement_timeout")).fetchone()
    await engine.dispose()

    assert (inside, prepared, outside) == ("7s", None, ("30s",))


async def test_options_of_the_address_have_precedence(database_url: str) -> None:
    url = make_url(database_url).update_query_dict(
        {"application_name": "mine", "options": "-c statement_timeout=1234", "connect_timeout": "3"}
    )
    engine = open_engine(url.render_as_string(hide_password=False))
    async with engine.connect() as connection:
        query = text("SELECT current_setting('application_name'), current_setting('statement_timeout')")
        row = (await connection.execute(query)).one()
    await engine.dispose()

    assert tuple(row) == ("mine", "1234ms")


async def test_the_drivers_connection_is_in_the_same_transaction(engine: AsyncEngine) -> None:
    async with engine.begin() as connection:
        await connection.execute(text("CREATE TABLE seen (n int)"))
        raw = await driver(connection)
        async with raw.pipeline():
            await raw.execute("INSERT INTO seen VALUES (1)")
            await raw.execute("INSERT INTO seen VALUES (2)")
        await connection.rollback()

    async with engine.connect() as connection:
        assert (await connection.execute(text("SELECT to_regclass('seen')"))).scalar_one() is None


async def test_requests_after_a_restart_succeed(own_server: EmbeddedPostgres) -> None:
    engine = open_engine(own_server.url)
    async with asyncio.TaskGroup() as group:
        before = [group.create_task(_answer(engine)) for _ in range(5)]

    own_server.stop()
    own_server.start()

    assert [await _answer(engine) for _ in range(5)] == [task.result() for task in before]
    await engine.dispose()


@pytest.mark.parametrize("state", ["", "42P01"])
def test_error_of_libpq_itself_without_a_code_of_the_server_is_an_unavailable_postgres(state: str) -> None:
    error = psycopg.DatabaseError("server closed the connection unexpectedly")
    error.sqlstate = state or None

    with pytest.raises(psycopg.DatabaseError if state else DatabaseUnavailableError), translated():
        raise error


async def test_connection_lost_in_use_is_reported_and_the_next_one_works(engine: AsyncEngine) -> None:
    async def cut() -> None:
        async with engine.begin() as connection:
            await (await driver(connection)).execute("SELECT pg_terminate_backend(pg_backend_pid())")

    with pytest.raises(DatabaseUnavailableError), translated():
        await cut()

    assert await _answer(engine) == 42


@pytest.mark.parametrize("limit", ["transaction_timeout", "idle_in_transaction_session_timeout"])
async def test_session_that_the_server_ends_for_its_duration_is_reported_as_unavailable(
    engine: AsyncEngine, limit: str
) -> None:
    async def stay() -> None:
        async with engine.begin() as connection:
            await connection.execute(text(f"SET LOCAL {limit} = 20"))
            select.select([(await driver(connection)).fileno()], [], [])  # until the server has ended it
            await connection.execute(text("SELECT 1"))

    with pytest.raises(DatabaseUnavailableError, match="timeout"), translated():
        await stay()

    assert await _answer(engine) == 42


async def test_stopped_server_is_reported_within_the_timeout(own_server: EmbeddedPostgres) -> None:
    engine = open_engine(own_server.url, ConnectionLimits(statement_seconds=1.5, network_seconds=0.5))
    before = await _answer(engine)

    with frozen(own_server.pid), pytest.raises(DatabaseUnavailableError, match="within 2 s"), translated():
        await _answer(engine)

    assert await _answer(engine) == before
    await engine.dispose()


async def test_exhausted_pool_is_reported_and_recovers(database_url: str) -> None:
    engine = open_engine(database_url, ConnectionLimits(size=1, free_seconds=0.1))
    async with transaction(engine):
        with pytest.raises(DatabaseUnavailableError, match="stayed in use"), translated():
            await _answer(engine)

    assert await _answer(engine) == 42
    await engine.dispose()


async def test_absent_server_is_named_without_the_password() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        engine = open_engine(f"postgresql://me:{SECRET}@127.0.0.1:{closed.getsockname()[1]}/x")
        with pytest.raises(DatabaseUnavailableError, match=r"refused.*DATABASE_URL") as caught, translated():
            await _answer(engine)

    assert SECRET not in f"{caught.value} {caught.value.__cause__}"


async def test_wrong_password_is_reported_without_the_password(database_url: str) -> None:
    url = make_url(database_url).set(password=SECRET).render_as_string(hide_password=False)

    with pytest.raises(DatabaseUnavailableError, match="password authentication failed") as caught:
        async with connected(url):
            pass

    assert SECRET not in f"{caught.value} {caught.value.__cause__}"


async def test_connecting_to_a_silent_server_times_out(silent_port: int) -> None:
    engine = open_engine(f"postgresql://me@127.0.0.1:{silent_port}/x", ConnectionLimits(connect_seconds=2))

    with pytest.raises(DatabaseUnavailableError, match="timeout"), translated():
        await _answer(engine)


async def test_cancelled_connection_attempt_ends_at_once() -> None:
    came: asyncio.Queue[asyncio.StreamReader] = asyncio.Queue()

    async def stay_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        came.put_nowait(reader)
        await left.wait()
        writer.close()

    left = asyncio.Event()
    async with await asyncio.start_server(stay_silent, "127.0.0.1") as server:
        engine = open_engine(f"postgresql://me@127.0.0.1:{server.sockets[0].getsockname()[1]}/x")
        asking = asyncio.get_running_loop().create_task(_answer(engine))
        reader = await came.get()
        gc.disable()  # what is only garbage is open all the same
        try:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            async with asyncio.timeout(60):
                await reader.read()
        finally:
            gc.enable()
            left.set()


async def test_waiting_for_a_free_connection_times_out(database_url: str) -> None:
    engine = open_engine(database_url, ConnectionLimits(size=1, free_seconds=0.05))
    async with engine.connect():
        with pytest.raises(DatabaseUnavailableError, match="in use"), translated():
            await _answer(engine)
    await engine.dispose()


async def test_waiting_for_a_lock_times_out(database_url: str) -> None:
    engine = open_engine(database_url, ConnectionLimits(lock_seconds=0.05))
    async with connected(database_url) as other, engine.connect() as connection:
        await other.execute("SELECT pg_advisory_lock(1)")
        with pytest.raises(DatabaseUnavailableError, match="lock timeout"), translated():
            await connection.execute(text("SELECT pg_advisory_lock(1)"))
    await engine.dispose()


async def test_programming_error_is_not_reported_as_unavailable(engine: AsyncEngine) -> None:
    with pytest.raises(DBAPIError) as caught, translated():
        async with engine.connect() as connection:
            await connection.execute(text("SELECT nonsense"))

    assert isinstance(caught.value.orig, errors.UndefinedColumn)
    assert isinstance(caught.value.orig, psycopg.ProgrammingError)


async def test_statement_over_a_server_limit_is_not_reported_as_unavailable(engine: AsyncEngine) -> None:
    with pytest.raises(DBAPIError) as caught, translated():
        async with engine.connect() as connection:
            await connection.execute(text("SELECT CAST(repeat('[', 1000000) AS jsonb)"))

    assert isinstance(caught.value.orig, errors.StatementTooComplex)


async def test_server_that_became_a_replica_is_reported_as_unavailable(engine: AsyncEngine) -> None:
    with pytest.raises(DatabaseUnavailableError, match="read-only"), translated():
        async with transaction(engine) as connection:
            await connection.execute("SET TRANSACTION READ ONLY; DELETE FROM runs")


async def test_a_server_that_ends_even_new_connections_is_away(engine: AsyncEngine, database_url: str) -> None:
    def end(connection: Any, _: object) -> None:
        ours: psycopg.AsyncConnection[Any] = connection.driver_connection
        with psycopg.connect(database_url, autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s)", [ours.info.backend_pid])
        select.select([ours.fileno()], [], [])

    event.listen(engine.sync_engine, "connect", end)
    with pytest.raises(DatabaseUnavailableError, match="ended the connection"), translated():
        await engine.connect()
    event.remove(engine.sync_engine, "connect", end)

    async with engine.connect() as connection:
        assert (await connection.execute(text("SELECT 1"))).scalar_one() == 1
