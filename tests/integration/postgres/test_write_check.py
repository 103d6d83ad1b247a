"""The check whether Postgres takes writes: shared by callers, and repeated after a second or a failed write."""

import asyncio
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.core.errors import DatabaseUnavailableError
from starling.infra.postgres import availability
from starling.infra.postgres.availability import WriteCheck

_execute = availability.execute_autocommit


class Clock:
    """Seconds that a test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that checks have sent, each of which Postgres has executed."""
    sent: list[str] = []

    async def execute(engine: AsyncEngine, statement: str, values: dict[str, Any]) -> object:
        sent.append(statement)
        return await _execute(engine, statement, values)

    monkeypatch.setattr(availability, "execute_autocommit", execute)
    return sent


async def test_callers_of_one_moment_share_a_check_and_those_of_the_next_second_its_success(
    engine: AsyncEngine, written: list[str]
) -> None:
    clock = Clock()
    writes = WriteCheck(engine, clock)

    await asyncio.gather(*(writes.check() for _ in range(20)))
    clock.now += 0.9
    await writes.check()
    shared = len(written)
    clock.now += 0.2
    await writes.check()

    assert (shared, len(written)) == (1, 2)


async def test_failed_write_ends_the_validity_of_a_successful_check(engine: AsyncEngine, written: list[str]) -> None:
    writes = WriteCheck(engine, Clock())
    await writes.check()
    with pytest.raises(DatabaseUnavailableError), writes.watched():
        raise DatabaseUnavailableError("The disk is full.")

    await writes.check()

    assert len(written) == 2


async def test_failure_is_shared_by_waiting_callers_and_not_kept(
    engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes = WriteCheck(engine, Clock())
    with monkeypatch.context() as patched:
        patched.setattr(availability, "_LOG_ENTRY", "SELECT NULL")  # what a Postgres that only reads returns

        failed = await asyncio.gather(*(writes.check() for _ in range(5)), return_exceptions=True)

    assert [type(error) for error in failed] == [DatabaseUnavailableError] * 5
    await writes.check()


async def test_caller_that_is_cancelled_leaves_the_check_to_the_others(engine: AsyncEngine, written: list[str]) -> None:
    writes = WriteCheck(engine, Clock())
    first, second = (asyncio.get_running_loop().create_task(writes.check()) for _ in range(2))
    await asyncio.sleep(0)

    first.cancel()
    await second

    assert len(written) == 1
