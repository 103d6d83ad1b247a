"""The check whether Postgres takes writes: shared by callers, and repeated after a second or a failed statement."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from mcp_gateway.registration.approved_tools import LiveReview
from mcp_gateway.registration.listed_tools import Listed
from mcp_gateway.registration.repository import ServerRepository
from mcp_gateway.sessions.breakers import BreakerReports, ServerBreakers
from starling.core.background_tasks import in_background
from starling.core.errors import DatabaseUnavailableError
from starling.infra.embeddings.cache import PostgresCachingEmbedder
from starling.infra.embeddings.static_vectors import StaticEmbedder
from starling.infra.postgres import availability
from starling.infra.postgres.availability import WriteCheck
from starling.infra.postgres.embeddings import EmbeddingRepository
from starling.infra.postgres.engine import changing, execute_autocommit, open_engine, transaction
from starling.infra.postgres.server_breakers import BreakerRepository
from tests.support.gateway_harness import wait_for

_FULL = """
DO $$ BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$"""
_LOGGER = availability.__name__


class Clock:
    """Seconds that a test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """One item for each check that was made."""
    made: list[None] = []
    write = WriteCheck._write  # pyright: ignore[reportPrivateUsage]

    async def counted(self: WriteCheck) -> None:
        made.append(None)
        await write(self)

    monkeypatch.setattr(WriteCheck, "_write", counted)
    return made


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Have checks refused as by a Postgres whose disk is full, until it is undone."""
    monkeypatch.setattr(availability, "_NEEDS_SPACE", (_FULL.encode(),))
    return monkeypatch


async def test_callers_of_one_moment_share_a_check_and_those_of_the_next_second_its_success(
    engine: AsyncEngine, checks: list[None]
) -> None:
    clock = Clock()
    writes = WriteCheck(engine, clock)

    await asyncio.gather(*(writes.check() for _ in range(20)))
    clock.now += 0.9
    await writes.check()
    shared = len(checks)
    clock.now += 0.2
    await writes.check()

    assert (shared, len(checks)) == (1, 2)


async def by_session(engine: AsyncEngine) -> None:
    async with changing(engine) as connection:
        await connection.exec_driver_sql(_FULL)


async def by_transaction(engine: AsyncEngine) -> None:
    async with transaction(engine) as connection:
        await connection.execute(_FULL.encode())


async def by_statement(engine: AsyncEngine) -> None:
    await execute_autocommit(engine, _FULL, {})


@pytest.mark.parametrize("write", [by_session, by_transaction, by_statement])
async def test_failed_write_of_any_writer_ends_the_validity_of_a_successful_check(
    engine: AsyncEngine, checks: list[None], write: Callable[[AsyncEngine], Awaitable[None]]
) -> None:
    clock = Clock()
    writes = WriteCheck(engine, clock)
    await writes.check()
    clock.now += 0.1
    with pytest.raises(DatabaseUnavailableError, match="No space left"):
        await write(engine)
    clock.now += 0.1

    await writes.check()

    assert len(checks) == 2


async def test_failure_is_shared_by_waiting_callers_and_not_kept(
    engine: AsyncEngine, full_disk: pytest.MonkeyPatch
) -> None:
    writes = WriteCheck(engine, Clock())

    failed = await asyncio.gather(*(writes.check() for _ in range(5)), return_exceptions=True)

    assert [type(error) for error in failed] == [DatabaseUnavailableError] * 5
    full_disk.undo()
    await writes.check()


async def test_caller_that_is_cancelled_leaves_the_check_to_the_others(engine: AsyncEngine, checks: list[None]) -> None:
    writes = WriteCheck(engine, Clock())
    first, second = (asyncio.get_running_loop().create_task(writes.check()) for _ in range(2))
    await asyncio.sleep(0)

    first.cancel()
    await second

    assert len(checks) == 1


async def test_outage_is_a_line_at_its_beginning_one_a_minute_and_one_at_its_end(
    engine: AsyncEngine, full_disk: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    writes = WriteCheck(engine, clock)
    with caplog.at_level(logging.INFO, _LOGGER):
        for _ in range(70):
            with pytest.raises(DatabaseUnavailableError):
                await writes.check()
            clock.now += 1
        full_disk.undo()
        await writes.check()

    told = [record for record in caplog.records if record.name == _LOGGER]
    begin, minute, end = ((record.levelname, record.getMessage()) for record in told)
    assert begin[0] == minute[0] == "WARNING"
    assert "No space left on device" in begin[1]
    assert "for 60 s; failures: 61" in minute[1]
    assert end == ("INFO", "Postgres can be used again, after 70 s; failures: 70")


async def test_part_that_fails_while_others_work_keeps_the_outage_open(caplog: pytest.LogCaptureFixture) -> None:
    outage = availability.postgres_outage(Clock())
    with caplog.at_level(logging.INFO, _LOGGER):
        outage.failed("refused", "notifications")
        outage.failed("refused", "leases")
        outage.recovered("leases")
        outage.recovered("queries")
        lasts = outage.lasts
        outage.recovered("notifications")

    assert lasts
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


async def test_idle_process_finds_a_full_disk_by_its_own_check(
    engine: AsyncEngine, full_disk: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    full_disk.setattr(availability, "_FRESH_SECONDS", 0.01)
    full_disk.setattr(availability, "_IDLE_SECONDS", 0.02)

    async with in_background(WriteCheck(engine).watch(), "watch-writes"):
        await wait_for(lambda: "No space left on device" in caplog.text)


async def test_parts_that_do_without_postgres_add_no_warning_to_that_of_the_outage(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine, embedder = open_engine("postgresql://nobody@127.0.0.1:1/none"), StaticEmbedder()
    WriteCheck(engine)
    breakers = ServerBreakers()
    reports = BreakerReports(BreakerRepository(engine), "here", breakers)
    with caplog.at_level(logging.INFO):
        breakers.on_change("server")
        await wait_for(lambda: "not told how calls of server server end" in caplog.text)
        await LiveReview(ServerRepository(engine)).followed("server", "hash", Listed("", {}))
        await PostgresCachingEmbedder(embedder, EmbeddingRepository(engine), lambda _: None).kept("a", ["text"])
    await reports.stop()
    await engine.dispose()

    assert "can't be compared" in caplog.text
    assert "can't be read" in caplog.text
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record.name for record in warnings] == [_LOGGER]
