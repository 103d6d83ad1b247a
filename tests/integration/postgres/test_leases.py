"""Who owns a run: it is claimed by one, and taken over once its lease is gone."""

import asyncio
from dataclasses import replace
from functools import partial

import pytest
from psycopg import AsyncConnection
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.core.runs import RunConfig, RunLimits
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.lease_renewal import LeaseRenewer
from tests.support.admission_harness import AdmissionHarness
from tests.support.run_factories import claimed, new_run

_TAKEN = """
INSERT INTO procrastinate_jobs (queue_name, task_name, status, args)
SELECT 'runs', 'starling.run', 'doing', jsonb_build_object('tenant', tenant, 'run_id', id) FROM runs"""


@pytest.fixture
def admission(engine: AsyncEngine) -> AdmissionHarness:
    return AdmissionHarness(engine)


async def execute(url: str, statement: str) -> None:
    async with await AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(statement.encode())


async def test_a_run_is_claimed_by_one(admission: AdmissionHarness) -> None:
    key = await admission.accept()

    won = await asyncio.gather(*(admission.claims(key) for _ in range(5)))

    assert sorted(won) == [False, False, False, False, True]


async def test_another_tenant_cannot_claim_it(admission: AdmissionHarness) -> None:
    key = await admission.accept()

    assert not await admission.claims(RunKey("other", key.id))


async def test_an_expired_lease_is_taken_over_under_the_next_fence(
    admission: AdmissionHarness, database_url: str
) -> None:
    key = await admission.accept()
    first = await claimed(admission.leases, key)
    await execute(database_url, "UPDATE runs SET lease_until = now() - interval '1 second'")

    second = await claimed(admission.leases, key)

    assert (first.run.fence, second.run.fence, second.run.crashes) == (1, 2, 1)
    with LeaseRenewer(database_url, lease_seconds=60) as renewals:
        assert renewals.renew([first.run, second.run]).held == {(key.id, 2)}


async def test_a_renewed_lease_holds(admission: AdmissionHarness, database_url: str) -> None:
    key = await admission.accept()
    claim = await claimed(admission.leases, key)
    await execute(database_url, "UPDATE runs SET lease_until = now() - interval '1 second'")

    with LeaseRenewer(database_url, lease_seconds=60) as renewals:
        renewals.renew([claim.run])

    assert not await admission.claims(key)


async def test_a_run_that_is_being_written_to_does_not_hold_up_the_others(
    admission: AdmissionHarness, database_url: str
) -> None:
    keys = [await admission.accept(thread=thread) for thread in "ab"]
    locked, free = [(await claimed(admission.leases, key)).run for key in keys]

    with LeaseRenewer(database_url, lease_seconds=60) as renewals:
        async with await AsyncConnection.connect(database_url) as writing:
            await writing.execute("UPDATE runs SET seq = seq WHERE thread_id = 'a'")
            renewed = renewals.renew([locked, free])
        again = renewals.renew([locked, free])

    assert (renewed.held, renewed.locked) == ({(locked.id, 1), (free.id, 1)}, {(locked.id, 1)})
    assert again.locked == frozenset()


async def test_a_renewal_tells_which_runs_are_to_be_cancelled(admission: AdmissionHarness, database_url: str) -> None:
    runs = [(await claimed(admission.leases, await admission.accept(thread=thread))).run for thread in "ab"]
    await execute(database_url, "UPDATE runs SET cancel_requested = true WHERE thread_id = 'b'")

    with LeaseRenewer(database_url, lease_seconds=60) as renewals:
        assert renewals.renew(runs).cancelled == {(runs[1].id, 1)}


async def test_a_worker_takes_back_what_it_does_not_know_that_it_holds(admission: AdmissionHarness) -> None:
    key = await admission.accept()
    claim = partial(admission.leases.claim, key, lease_seconds=60, run_seconds=60, reclaim_own=True)
    await claim(worker="mine")  # and the answer is lost

    others = await claim(worker="another")
    mine = await claim(worker="mine")

    assert others is None
    assert mine is not None
    assert (mine.run.fence, mine.run.crashes) == (2, 0)


async def test_the_sweep_queues_what_nobody_holds(admission: AdmissionHarness, database_url: str) -> None:
    missing, expired, held = [await admission.accept(thread=f"thread {number}") for number in range(3)]
    for key in (missing, expired, held):
        await claimed(admission.leases, key)
    await execute(database_url, "UPDATE runs SET lease_until = NULL WHERE thread_id = 'thread 0'")
    await execute(database_url, "UPDATE runs SET lease_until = now() - interval '1 s' WHERE thread_id = 'thread 1'")
    admission.queued.clear()

    found = await admission.leases.sweep(grace_seconds=60)

    assert found == 2
    assert set(admission.queued) == {missing, expired}


async def test_a_run_that_is_handed_back_is_queued_and_costs_no_crash(admission: AdmissionHarness) -> None:
    key = await admission.accept()
    claim = await claimed(admission.leases, key)
    admission.queued.clear()

    await admission.leases.release(claim.run)

    assert admission.queued == [key]
    assert (await claimed(admission.leases, key)).run.crashes == 0


async def test_the_sweep_queues_a_runnable_run_whose_job_was_lost(
    admission: AdmissionHarness, database_url: str
) -> None:
    key = await admission.accept()
    admission.queued.clear()

    early = await admission.leases.sweep(grace_seconds=60)
    await execute(database_url, "UPDATE runs SET admitted_at = now() - interval '61 seconds'")
    late = await admission.leases.sweep(grace_seconds=60)

    assert (early, late, admission.queued) == (0, 1, [key])


async def test_the_sweep_forgets_the_jobs_that_a_dead_worker_had_taken(
    admission: AdmissionHarness, database_url: str
) -> None:
    ended, held = [await admission.accept(thread=thread) for thread in "ab"]
    await admission.end(ended)
    await claimed(admission.leases, held)
    await execute(database_url, _TAKEN)

    await admission.leases.sweep(grace_seconds=60)

    async with await AsyncConnection.connect(database_url) as connection:
        left = await (await connection.execute("SELECT args ->> 'run_id' FROM procrastinate_jobs")).fetchall()
    assert left == [(held.id,)]


async def test_the_sweep_admits_a_head_that_was_missed(admission: AdmissionHarness, database_url: str) -> None:
    key = await admission.accept()
    await execute(database_url, "UPDATE runs SET admitted_at = NULL")
    admission.queued.clear()

    await admission.leases.sweep(grace_seconds=60)

    assert admission.queued == [key]


async def test_a_release_by_a_worker_that_lost_the_run_changes_nothing(
    admission: AdmissionHarness, database_url: str
) -> None:
    key = await admission.accept()
    first = await claimed(admission.leases, key)
    await execute(database_url, "UPDATE runs SET lease_until = now() - interval '1 second'")
    await claimed(admission.leases, key)

    await admission.leases.release(first.run)

    assert not await admission.claims(key)


async def test_a_caller_may_ask_for_less_time_but_not_for_more(admission: AdmissionHarness) -> None:
    for seconds, given in ((5.0, 5.0), (500.0, 60.0)):
        new = new_run(thread=f"{seconds}")
        config = RunConfig(limits=RunLimits(run_seconds=seconds))
        await admission.repository.accept(replace(new, config=config))

        claim = await claimed(admission.leases, new.key)

        assert claim.run.remaining_seconds == pytest.approx(given)
