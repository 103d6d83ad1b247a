"""What runs wait for, by the database's clock."""

from datetime import timedelta

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.core.clock import SystemClock
from starling.infra.postgres.broadcast import Broadcast
from starling.infra.postgres.interrupts import InterruptRepository
from starling.infra.postgres.writer import RunWriter
from tests.support.line import Line
from tests.support.runs import a_question, claimed, wait_for_answer


@pytest.mark.parametrize("skew", [timedelta(days=-2), timedelta(days=2)], ids=["behind", "ahead"])
async def test_a_question_lasts_as_long_as_it_is_meant_to_whatever_its_workers_clock_says(
    engine: AsyncEngine, skew: timedelta
) -> None:
    line, clock = Line(engine), SystemClock().now() + skew
    interrupts = InterruptRepository(engine, line.repository)
    key = await line.accept()
    writer = RunWriter(engine, await claimed(line.leases, key), Broadcast())
    await wait_for_answer(writer, a_question(key.id, seconds=3600, clock=clock), interrupts, clock=clock)
    await writer.close()

    [asked] = await interrupts.waiting(key.tenant)

    assert asked.created_at is not None
    assert asked.expires_at - asked.created_at == timedelta(seconds=3600)
