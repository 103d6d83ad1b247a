"""The list of open interrupts, as the command line shows it."""

from psycopg import AsyncConnection
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.infra.postgres.runs.acceptance import RunRepository
from starling.infra.postgres.runs.interrupts import BATCH_LIMIT, InterruptRepository
from tests.support.run_factories import defer_nothing, new_run

_ASK = b"""
INSERT INTO interrupts (tenant, id, run_id, key, kind, path, reason, message, response_schema, state, expires_at)
SELECT runs.tenant, gen_random_uuid(), runs.id, number, 'approval', 't1', 'why', 'May I?', '{}', 'open',
    now() + interval '1 day'
FROM runs, generate_series(1, %s) AS number"""


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
