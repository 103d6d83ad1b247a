"""Interrupts in the database: their expiry by its clock, and their pages."""

from datetime import datetime, timedelta

import pytest
from psycopg import AsyncConnection
from sqlalchemy.ext.asyncio import AsyncEngine

from brain.interrupts.requests import InterruptRequest, Interrupts
from starling.core.clock import SystemClock
from starling.core.errors import SuspendedError
from starling.infra.postgres.runs.acceptance import RunRepository
from starling.infra.postgres.runs.broadcast import Broadcast
from starling.infra.postgres.runs.interrupts import BATCH_LIMIT, InterruptRepository
from starling.infra.postgres.runs.leases import backlog
from starling.infra.postgres.runs.reader import RunReader
from starling.infra.postgres.runs.writer import RunWriter
from tests.support.admission_harness import AdmissionHarness
from tests.support.run_factories import claimed, defer_nothing, new_run

A_DAY = timedelta(days=1).total_seconds()
WISH = InterruptRequest("clarification", "clarification/1", "supervisor", "It is unclear.", "Which disk?", {})


class SkewedClock(SystemClock):
    """The clock of a machine with the wrong time."""

    def __init__(self, skew: timedelta) -> None:
        self._skew = skew

    def now(self) -> datetime:
        return super().now() + self._skew


@pytest.mark.parametrize("skew", [timedelta(days=-2), timedelta(days=2)], ids=["behind", "ahead"])
async def test_question_expires_by_the_database_clock_when_the_worker_clock_is_wrong(
    engine: AsyncEngine, skew: timedelta
) -> None:
    admission = AdmissionHarness(engine)
    key = await admission.accept()
    broadcast = Broadcast()
    writer = RunWriter(engine, await claimed(admission.leases, key), broadcast)
    with pytest.raises(SuspendedError):
        Interrupts(writer, SkewedClock(skew), A_DAY).answer_to(WISH)
    await writer.flush()
    await writer.close()

    [asked] = await InterruptRepository(engine, admission.repository).waiting(key.tenant)
    stream = RunReader(engine, broadcast).follow(key)
    event = await anext(event async for event in stream if event.type == "clarification")

    assert asked.createdAt is not None
    assert timedelta(hours=23) < asked.expiresAt - asked.createdAt <= timedelta(hours=24, seconds=1)
    assert datetime.fromisoformat(event.data["expiresAt"]) == asked.expiresAt


_ASK = b"""
INSERT INTO interrupts (tenant, id, run_id, key, kind, path, reason, message, response_schema, state, expires_at)
SELECT runs.tenant, gen_random_uuid(), runs.id, number, 'approval', 't1', 'why', 'May I?', '{}', 'open',
    now() + interval '1 day'
FROM runs, generate_series(1, %s) AS number"""


async def test_open_interrupts_are_counted_by_their_age(engine: AsyncEngine, database_url: str) -> None:
    await RunRepository(engine, defer_nothing, cap=8).accept(new_run())
    ages = "59 minutes", "61 minutes", "23 hours", "25 hours", "6 days", "167 hours", "169 hours"
    async with await AsyncConnection.connect(database_url) as connection:
        await connection.execute(_ASK, (len(ages) + 1,))
        for number, age in enumerate(ages, 1):
            created = "UPDATE interrupts SET created_at = now() - %s::interval WHERE key = %s"
            await connection.execute(created, (age, str(number)))
        await connection.execute("UPDATE interrupts SET state = 'answered' WHERE key = %s", (str(len(ages) + 1),))

    assert (await backlog(engine)).interrupts == {"hour": 1, "day": 2, "week": 3, "older": 1}


async def test_page_after_a_full_batch_has_the_other_interrupts(engine: AsyncEngine, database_url: str) -> None:
    runs = RunRepository(engine, defer_nothing, cap=8)
    new = new_run()
    await runs.accept(new)
    async with await AsyncConnection.connect(database_url) as connection:
        await connection.execute(_ASK, (BATCH_LIMIT + 1,))
    interrupts = InterruptRepository(engine, runs)

    first = await interrupts.waiting(new.key.tenant)
    further = await interrupts.waiting(new.key.tenant, after=first[-1].id)

    assert (len(first), len(further)) == (BATCH_LIMIT, 1)
    assert [item.id for item in (*first, *further)] == sorted({item.id for item in (*first, *further)})
