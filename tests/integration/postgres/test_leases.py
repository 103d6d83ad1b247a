"""Who owns a run: it is claimed by one, and taken over once its lease is gone."""

import asyncio
from dataclasses import replace
from functools import partial

import pytest
from psycopg import AsyncConnection
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.core.runs import RunConfig, RunLimits
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.lease_renewal import Renewals
from tests.support.line import Line
from tests.support.runs import a_run, claimed

_TAKEN = """
INSERT INTO procrastinate_jobs (queue_name, task_name, status, args)
SELECT 'runs', 'starling.run', 'doing', jsonb_build_object('tenant', tenant, 'run_id', id) FROM runs"""


@pytest.fixture
def line(engine: AsyncEngine) -> Line:
    return Line(engine)


async def execute(url: str, statement: str) -> None:
    async with await AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(statement.encode())


async def test_a_run_is_claimed_by_one(line: Line) -> None:
    key = await line.accept()

    won = await asyncio.gather(*(line.claims(key) for _ in range(5)))

    assert sorted(won) == [False, False, False, False, True]


async def test_another_tenant_cannot_claim_it(line: Line) -> None:
    key = await line.accept()

    assert not await line.claims(RunKey("other", key.id))


async def test_an_expired_lease_is_taken_over_under_the_next_fence(line: Line, database_url: str) -> None:
    key = await line.accept()
    first = await claimed(line.leases, key)
    await execute(database_url, "UPDATE runs SET lease_until = now() - interval '1 second'")

    second = await claimed(line.leases, key)

    assert (first.run.fence, second.run.fence, second.run.crashes) == (1, 2, 1)
    with Renewals(database_url, lease_seconds=60) as renewals:
        assert renewals.renew([first.run, second.run]).held == {(key.id, 2)}


async def test_a_renewed_lease_holds(line: Line, database_url: str) -> None:
    key = await line.accept()
    claim = await claimed(line.leases, key)
    await execute(database_url, "UPDATE runs SET lease_until = now() - interval '1 second'")

    with Renewals(database_url, lease_seconds=60) as renewals:
        renewals.renew([claim.run])

    assert not await line.claims(key)


async def test_a_run_that_is_being_written_to_does_not_hold_up_the_others(line: Line, database_url: str) -> None:
    keys = [await line.accept(thread=thread) for thread in "ab"]
    locked, free = [(await claimed(line.leases, key)).run for key in keys]

    with Renewals(database_url, lease_seconds=60) as renewals:
        async with await AsyncConnection.connect(database_url) as writing:
            await writing.execute("UPDATE runs SET seq = seq WHERE thread_id = 'a'")
            renewed = renewals.renew([locked, free])
        again = renewals.renew([locked, free])

    assert (renewed.held, renewed.locked) == ({(locked.id, 1), (free.id, 1)}, {(locked.id, 1)})
    assert again.locked == frozenset()


async def test_a_renewal_tells_which_runs_are_to_be_cancelled(line: Line, database_url: str) -> None:
    runs = [(await claimed(line.leases, await line.accept(thread=thread))).run for thread in "ab"]
    await execute(database_url, "UPDATE runs SET cancel_requested = true WHERE thread_id = 'b'")

    with Renewals(database_url, lease_seconds=60) as renewals:
        assert renewals.renew(runs).cancelled == {(runs[1].id, 1)}


async def test_a_worker_takes_back_what_it_does_not_know_that_it_holds(line: Line) -> None:
    key = await line.accept()
    claim = partial(line.leases.claim, key, lease_seconds=60, run_seconds=60, unaware=True)
    await claim(worker="mine")  # and the answer is lost

    others = await claim(worker="another")
    mine = await claim(worker="mine")

    assert others is None
    assert mine is not None
    assert (mine.run.fence, mine.run.crashes) == (2, 0)


async def test_the_sweep_queues_what_nobody_holds(line: Line, database_url: str) -> None:
    missing, expired, held = [await line.accept(thread=f"thread {number}") for number in range(3)]
    for key in (missing, expired, held):
        await claimed(line.leases, key)
    await execute(database_url, "UPDATE runs SET lease_until = NULL WHERE thread_id = 'thread 0'")
    await execute(database_url, "UPDATE runs SET lease_until = now() - interval '1 s' WHERE thread_id = 'thread 1'")
    line.queued.clear()

    found = await line.leases.sweep(patience_seconds=60)

    assert found == 2
    assert set(line.queued) == {missing, expired}


async def test_a_run_that_is_handed_back_is_queued_and_costs_no_crash(line: Line) -> None:
    key = await line.accept()
    claim = await claimed(line.leases, key)
    line.queued.clear()

    await line.leases.release(claim.run)

    assert line.queued == [key]
    assert (await claimed(line.leases, key)).run.crashes == 0


async def test_the_sweep_queues_a_runnable_run_whose_job_was_lost(line: Line, database_url: str) -> None:
    key = await line.accept()
    line.queued.clear()

    early = await line.leases.sweep(patience_seconds=60)
    await execute(database_url, "UPDATE runs SET admitted_at = now() - interval '61 seconds'")
    late = await line.leases.sweep(patience_seconds=60)

    assert (early, late, line.queued) == (0, 1, [key])


async def test_the_sweep_forgets_the_jobs_that_a_dead_worker_had_taken(line: Line, database_url: str) -> None:
    ended, held = [await line.accept(thread=thread) for thread in "ab"]
    await line.end(ended)
    await claimed(line.leases, held)
    await execute(database_url, _TAKEN)

    await line.leases.sweep(patience_seconds=60)

    async with await AsyncConnection.connect(database_url) as connection:
        left = await (await connection.execute("SELECT args ->> 'run_id' FROM procrastinate_jobs")).fetchall()
    assert left == [(held.id,)]


async def test_the_sweep_admits_a_head_that_was_missed(line: Line, database_url: str) -> None:
    key = await line.accept()
    await execute(database_url, "UPDATE runs SET admitted_at = NULL")
    line.queued.clear()

    await line.leases.sweep(patience_seconds=60)

    assert line.queued == [key]


async def test_a_release_by_a_worker_that_lost_the_run_changes_nothing(line: Line, database_url: str) -> None:
    key = await line.accept()
    first = await claimed(line.leases, key)
    await execute(database_url, "UPDATE runs SET lease_until = now() - interval '1 second'")
    await claimed(line.leases, key)

    await line.leases.release(first.run)

    assert not await line.claims(key)


async def test_a_caller_may_ask_for_less_time_but_not_for_more(line: Line) -> None:
    for seconds, given in ((5.0, 5.0), (500.0, 60.0)):
        new = a_run(thread=f"{seconds}")
        config = RunConfig(limits=RunLimits(run_seconds=seconds))
        await line.repository.accept(replace(new, config=config))

        claim = await claimed(line.leases, new.key)

        assert claim.run.remaining_seconds == pytest.approx(given)
