"""Replicas: nothing keeps connections to a server that only reads, and no commit is told that the replica lacks."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.core.errors import DatabaseUnavailableError
from starling.infra.postgres.availability import WriteCheck
from starling.infra.postgres.engine import (
    ConnectionLimits,
    execute_autocommit,
    fetch_autocommit,
    open_engine,
    transaction,
    translated,
)
from starling.infra.postgres.notifications import open_hub
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.schema import upgrade
from tests.support.gateway_harness import wait_for
from tests.support.open_folder import new_open_folder
from tests.support.postgres_servers import ReplicatedPostgres
from tests.support.run_factories import new_run
from tests.support.run_queues import open_queue
from tests.support.tcp_proxy import TcpProxy, proxied

_WRITE = "CREATE TABLE IF NOT EXISTS written (number int)"
_SECONDS = 60


@dataclass(frozen=True, slots=True)
class MovedAddress:
    """An address that leads to the replica until it is moved to the primary."""

    url: str
    proxy: TcpProxy
    postgres: ReplicatedPostgres

    def move(self) -> None:
        self.proxy.lead_to(self.postgres.primary.port)


@pytest.fixture(scope="module")
def postgres() -> Generator[ReplicatedPostgres]:
    with new_open_folder() as folder, ReplicatedPostgres(folder, synchronous=False) as postgres:
        asyncio.run(upgrade(postgres.url))
        lsn = postgres.primary.value("SELECT pg_current_wal_lsn()")
        postgres.replica.wait_until(f"SELECT pg_last_wal_replay_lsn() >= '{lsn}'")
        yield postgres


@pytest.fixture
async def address(postgres: ReplicatedPostgres) -> AsyncGenerator[MovedAddress]:
    async with proxied(postgres.replica.url()) as database:
        yield MovedAddress(database.url, database.proxy, postgres)


@pytest.fixture
async def engine(address: MovedAddress) -> AsyncGenerator[AsyncEngine]:
    engine = open_engine(address.url)
    yield engine
    await engine.dispose()


async def by_session(engine: AsyncEngine) -> None:
    with translated():
        async with engine.begin() as connection:
            await connection.execute(text(_WRITE))


async def by_transaction(engine: AsyncEngine) -> None:
    with translated():
        async with transaction(engine) as connection:
            await connection.execute(_WRITE)


async def by_statement(engine: AsyncEngine) -> None:
    with translated():
        await execute_autocommit(
            engine, "WITH made AS (INSERT INTO alembic_version SELECT '0' WHERE false) SELECT 1", {}
        )


async def by_check(engine: AsyncEngine) -> None:
    await WriteCheck(engine).check()


@pytest.mark.parametrize("write", [by_session, by_transaction, by_statement, by_check])
async def test_write_after_the_move_reaches_the_primary(
    address: MovedAddress, engine: AsyncEngine, write: Callable[[AsyncEngine], Awaitable[None]]
) -> None:
    async with engine.connect(), engine.connect():
        pass
    await asyncio.gather(*(fetch_autocommit(engine, "SELECT 1", {}) for _ in range(2)))
    with pytest.raises(DatabaseUnavailableError, match="read"):
        await write(engine)

    address.move()

    await write(engine)


async def test_hub_listens_at_the_primary_after_the_move(address: MovedAddress) -> None:
    async with asyncio.timeout(_SECONDS), open_hub(address.url) as hub:
        notices = hub.notices("moved", at_least_every=_SECONDS)
        first = asyncio.ensure_future(anext(notices))
        await asyncio.sleep(0)
        await wait_for(lambda: address.proxy.connections > 0)

        address.move()

        assert await first


async def test_job_is_handled_after_the_move(address: MovedAddress) -> None:
    primary = open_engine(address.postgres.primary.url())
    handled = asyncio.Event()

    async def handle(_: RunKey) -> None:
        handled.set()

    async with open_queue(address.postgres.primary.url()) as queue, transaction(primary) as connection:
        await queue.defer(connection, [new_run().key])
    await primary.dispose()
    async with open_queue(address.url) as queue:
        working = asyncio.get_running_loop().create_task(queue.work(handle, concurrency=1, per_tenant=1, isolated=1))
        await wait_for(lambda: address.proxy.connections > 0)

        address.move()

        await asyncio.wait_for(handled.wait(), _SECONDS)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


@pytest.mark.parametrize("write", [by_session, by_transaction, by_check])
async def test_commit_waits_for_the_synchronous_replica(
    postgres: ReplicatedPostgres, write: Callable[[AsyncEngine], Awaitable[None]]
) -> None:
    impatient = open_engine(postgres.primary.url(), ConnectionLimits(statement_seconds=1, network_seconds=0.1))
    patient = open_engine(postgres.primary.url())
    postgres.primary.execute("DROP TABLE IF EXISTS written", database="starling")
    with without_its_replica(postgres):
        with pytest.raises(DatabaseUnavailableError, match="no answer"):
            await write(impatient)

        assert postgres.primary.value("SELECT to_regclass('written')", "starling") is None

    await write(patient)
    await impatient.dispose()
    await patient.dispose()


@contextmanager
def without_its_replica(postgres: ReplicatedPostgres) -> Generator[None]:
    """Have commits of the primary wait for a replica that doesn't exist."""
    postgres.primary.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'", "SELECT pg_reload_conf()")
    postgres.primary.wait_until("SELECT current_setting('synchronous_standby_names') = 'nobody'")
    postgres.primary.execute("CHECKPOINT")  # commits wait once the checkpointer has read the setting
    try:
        yield
    finally:
        postgres.primary.execute("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
        # Once the checkpointer has read the setting, it lets the commits that waited end.
        postgres.primary.wait_until("SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = 'starling'")
