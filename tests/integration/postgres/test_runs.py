"""The run row: accepted at once, admitted in order."""

import asyncio

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.infra.postgres.broadcast import Broadcast
from starling.infra.postgres.streams import RunReader
from tests.support.line import CAP, Line


@pytest.fixture
def line(engine: AsyncEngine) -> Line:
    return Line(engine)


async def test_a_run_that_is_accepted_has_its_first_event(line: Line, engine: AsyncEngine) -> None:
    key = await line.accept()

    (first,) = await RunReader(engine, Broadcast()).events(key)
    assert (first.seq, first.type, first.data["run_id"]) == (1, "run_started", key.id)


async def test_one_run_of_a_branch_is_runnable_and_its_end_admits_the_next(line: Line) -> None:
    first, second, third = [await line.accept() for _ in range(3)]

    assert line.queued == [first]
    assert not await line.claims(second)
    await line.end(first)
    assert line.queued == [first, second]
    assert not await line.claims(third)
    await line.end(second)
    assert line.queued == [first, second, third]


async def test_runs_that_come_at_once_stand_in_one_line(line: Line) -> None:
    keys = await asyncio.gather(*(line.accept() for _ in range(6)))

    for _ in keys:
        assert len(line.queued) == len(set(line.queued))
        await line.end(line.queued[-1])

    assert sorted(key.id for key in line.queued) == sorted(key.id for key in keys)


async def test_a_tenant_has_no_more_runnable_runs_than_its_cap(line: Line) -> None:
    keys = [await line.accept(thread=f"thread {number}") for number in range(CAP + 2)]
    other = await line.accept(tenant="other")

    assert line.queued == [*keys[:CAP], other]
    await line.end(keys[0])
    assert line.queued[-1] == keys[CAP]
