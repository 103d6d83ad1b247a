"""Leases: a run is claimed by one worker, and by another once its lease has expired."""

import asyncio
from dataclasses import replace
from functools import partial

import pytest
from psycopg import AsyncConnection
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.core.run_status import RunStatus
from starling.core.runs import RunConfig, RunLimits
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.leases import Backlog, LeaseRenewer, backlog
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


async def test_run_is_claimed_by_one_worker_only(admission: AdmissionHarness) -> None:
    key = await admission.accept()

    won = await asyncio.gather(*(admission.claims(key) for _ in range(5)))

    assert sorted(won) == [False, False, False, False, True]


async def test_claim_by_another_tenant_returns_none(admission: AdmissionHarness) -> None:
    key = await admission.accept()

    assert not await admission.claims(RunKey("other", key.id))


async def test_run_that_a_later_version_began_waits_for_a_worker_of_it(engine: AsyncEngine) -> None:
    earlier, later = AdmissionHarness(engine), AdmissionHarness(engine, graph_version=2)
    key = await earlier.accept()
    await later.leases.release((await claimed(later.leases, key)).run)

    taken = await earlier.claims(key), await earlier.leases.later_version(key)
    queued = await earlier.leases.sweep(grace_seconds=0, lease_seconds=60)

    assert taken == (False, 2)
    assert queued == 1
    assert await later.claims(key)


async def test_run_that_an_earlier_version_began_is_continued_by_a_later_one(engine: AsyncEngine) -> None:
    earlier, later = AdmissionHarness(engine), AdmissionHarness(engine, graph_version=2)
    key = await later.accept()
    await earlier.leases.release((await claimed(earlier.leases, key)).run)

    assert await earlier.leases.later_version(key) is None
    assert await later.claims(key)


async def test_run_with_expired_lease_is_claimed_under_the_next_fence(
    admission: AdmissionHarness, database_url: str
) -> None:
    key = await admission.accept()
    first = await claimed(admission.leases, key)
    await execute(database_url, "UPDATE runs SET lease_until = now() - interval '1 second'")

    second = await claimed(admission.leases, key)

    assert (first.run.fence, second.run.fence) == (1, 2)
    with LeaseRenewer(database_url, lease_seconds=60) as renewals:
        assert renewals.renew([first.run, second.run]).held == {(key.id, 2)}


async def test_run_whose_process_ends_twice_is_suspected_and_crashes_count_only_while_it_is_alone(
    admission: AdmissionHarness, database_url: str
) -> None:
    key = await admission.accept()
    lives: list[tuple[bool, int]] = []
    for alone in (False, False, False, True, False):
        run = (await claimed(admission.leases, key)).run
        lives.append((run.suspected, run.crashes))
        if alone:
            await admission.leases.begin_alone(run)
        await execute(database_url, "UPDATE runs SET lease_until = now() - interval '1 second'")

    assert lives == [(False, 0), (False, 0), (True, 0), (True, 0), (True, 1)]


async def test_run_that_crashed_a_process_of_its_own_is_queued_and_stays_suspected(
    admission: AdmissionHarness, database_url: str
) -> None:
    key = await admission.accept()
    await claimed(admission.leases, key)
    await execute(database_url, "UPDATE runs SET lease_until = now() - interval '1 second', isolation = 'lost'")
    suspected = (await claimed(admission.leases, key)).run
    admission.queued.clear()

    await admission.leases.release(suspected, crashed=True)

    assert admission.queued == [key]
    again = (await claimed(admission.leases, key)).run
    assert (again.suspected, again.crashes) == (True, 1)


async def test_run_that_was_lost_once_is_still_unsuspected_after_it_was_handed_back_and_is_when_it_is_lost_again(
    admission: AdmissionHarness, database_url: str
) -> None:
    key = await admission.accept()
    await claimed(admission.leases, key)
    await execute(database_url, "UPDATE runs SET lease_until = now() - interval '1 second'")

    await admission.leases.release((await claimed(admission.leases, key)).run)
    lost_once = (await claimed(admission.leases, key)).run
    await execute(database_url, "UPDATE runs SET lease_until = now() - interval '1 second'")
    lost_twice = (await claimed(admission.leases, key)).run

    assert (lost_once.suspected, lost_twice.suspected) == (False, True)


async def test_renewed_lease_prevents_a_second_claim(admission: AdmissionHarness, database_url: str) -> None:
    key = await admission.accept()
    claim = await claimed(admission.leases, key)
    await execute(database_url, "UPDATE runs SET lease_until = now() - interval '1 second'")

    with LeaseRenewer(database_url, lease_seconds=60) as renewals:
        renewals.renew([claim.run])

    assert not await admission.claims(key)


async def test_renewal_skips_a_locked_run_and_renews_the_others(admission: AdmissionHarness, database_url: str) -> None:
    keys = [await admission.accept(thread=thread) for thread in "ab"]
    locked, free = [(await claimed(admission.leases, key)).run for key in keys]

    with LeaseRenewer(database_url, lease_seconds=60) as renewals:
        async with await AsyncConnection.connect(database_url) as writing:
            await writing.execute("UPDATE runs SET seq = seq WHERE thread_id = 'a'")
            renewed = renewals.renew([locked, free])
        again = renewals.renew([locked, free])

    assert (renewed.held, renewed.locked) == ({(locked.id, 1), (free.id, 1)}, {(locked.id, 1)})
    assert again.locked == frozenset()


async def test_worker_reclaims_its_own_run_without_counting_a_crash(admission: AdmissionHarness) -> None:
    key = await admission.accept()
    claim = partial(admission.leases.claim, key, lease_seconds=60, run_seconds=60, reclaim_own=True)
    await claim(worker="mine")  # and the answer is lost

    others = await claim(worker="another")
    mine = await claim(worker="mine")

    assert others is None
    assert mine is not None
    assert (mine.run.fence, mine.run.crashes) == (2, 0)


async def test_claim_tells_whether_its_branch_has_a_history(admission: AdmissionHarness, database_url: str) -> None:
    keys = [await admission.accept(thread=thread) for thread in "ab"]
    await execute(database_url, "UPDATE branches SET tip = 1 WHERE thread_id = 'b'")

    assert [(await claimed(admission.leases, key)).run.has_history for key in keys] == [False, True]


async def test_sweep_queues_runs_without_a_valid_lease(admission: AdmissionHarness, database_url: str) -> None:
    missing, expired, held = [await admission.accept(thread=f"thread {number}") for number in range(3)]
    for key in (missing, expired, held):
        await claimed(admission.leases, key)
    await execute(database_url, "UPDATE runs SET lease_until = NULL WHERE thread_id = 'thread 0'")
    await execute(database_url, "UPDATE runs SET lease_until = now() - interval '1 s' WHERE thread_id = 'thread 1'")
    admission.queued.clear()

    found = await admission.leases.sweep(grace_seconds=60, lease_seconds=60)

    assert found == 2
    assert set(admission.queued) == {missing, expired}


async def test_backlog_times_only_queued_runs_that_a_worker_may_take(
    admission: AdmissionHarness, database_url: str
) -> None:
    await claimed(admission.leases, await admission.accept(thread="busy"))
    await admission.accept(thread="busy")
    await execute(database_url, "UPDATE runs SET created_at = now() - interval '1 day'")

    held_back = await backlog(admission.engine)
    await admission.accept(thread="free")
    await execute(database_url, "UPDATE runs SET admitted_at = now() - interval '1 hour' WHERE thread_id = 'free'")
    waiting = await backlog(admission.engine)

    assert held_back == Backlog({RunStatus.RUNNING: 1, RunStatus.QUEUED: 1}, 0)
    assert 3_600 <= waiting.oldest_seconds < 86_400


async def test_sweep_shortens_leases_from_before_the_clock_was_set_back(
    admission: AdmissionHarness, database_url: str
) -> None:
    dead, alive = [await admission.accept(thread=thread) for thread in "ab"]
    await claimed(admission.leases, dead)
    held = (await claimed(admission.leases, alive)).run
    admission.queued.clear()
    await execute(database_url, "UPDATE runs SET lease_until = lease_until + interval '1 hour'")

    await admission.leases.sweep(grace_seconds=60, lease_seconds=60)
    await execute(database_url, "UPDATE runs SET lease_until = lease_until - interval '61 s'")  # as after that time
    with LeaseRenewer(database_url, lease_seconds=60) as renewals:
        renewals.renew([held])
    await admission.leases.sweep(grace_seconds=60, lease_seconds=60)

    assert admission.queued == [dead]


async def test_sweep_of_a_worker_with_shorter_leases_keeps_those_of_others(
    admission: AdmissionHarness, database_url: str
) -> None:
    key = await admission.accept()
    await claimed(admission.leases, key)  # for 60 s
    admission.queued.clear()

    await admission.leases.sweep(grace_seconds=60, lease_seconds=1)
    await execute(database_url, "UPDATE runs SET lease_until = lease_until - interval '50 s'")  # as after that time
    await admission.leases.sweep(grace_seconds=60, lease_seconds=1)

    assert admission.queued == []


@pytest.mark.parametrize(
    "admitted_at",
    ["now() - interval '61 seconds'", "now() + interval '1 hour'", "NULL"],
    ids=["job lost", "clock set back", "never admitted"],
)
async def test_sweep_queues_a_runnable_run_without_a_job(
    admission: AdmissionHarness, database_url: str, admitted_at: str
) -> None:
    key = await admission.accept()
    admission.queued.clear()

    early = await admission.leases.sweep(grace_seconds=60, lease_seconds=60)
    await execute(database_url, f"UPDATE runs SET admitted_at = {admitted_at}")  # noqa: S608
    await admission.leases.sweep(grace_seconds=60, lease_seconds=60)

    assert (early, admission.queued) == (0, [key])


async def test_sweep_deletes_the_jobs_fetched_by_a_dead_worker(admission: AdmissionHarness, database_url: str) -> None:
    ended, held = [await admission.accept(thread=thread) for thread in "ab"]
    await admission.end(ended)
    await claimed(admission.leases, held)
    await execute(database_url, _TAKEN)

    await admission.leases.sweep(grace_seconds=60, lease_seconds=60)

    async with await AsyncConnection.connect(database_url) as connection:
        left = await (await connection.execute("SELECT args ->> 'run_id' FROM procrastinate_jobs")).fetchall()
    assert left == [(held.id,)]


async def test_run_with_fields_of_a_later_version_is_claimed_without_them(
    admission: AdmissionHarness, database_url: str
) -> None:
    key = await admission.accept()
    await execute(database_url, 'UPDATE runs SET config = config || \'{"later": 1, "limits": {"later": 2}}\'')

    assert (await claimed(admission.leases, key)).run.config == RunConfig()


async def test_release_after_a_lost_lease_changes_nothing(admission: AdmissionHarness, database_url: str) -> None:
    key = await admission.accept()
    first = await claimed(admission.leases, key)
    await execute(database_url, "UPDATE runs SET lease_until = now() - interval '1 second'")
    await claimed(admission.leases, key)

    await admission.leases.release(first.run)

    assert not await admission.claims(key)


async def test_requested_run_seconds_can_only_shorten_the_deadline(admission: AdmissionHarness) -> None:
    for seconds, given in ((5.0, 5.0), (500.0, 60.0)):
        new = new_run(thread=f"{seconds}")
        config = RunConfig(limits=RunLimits(run_seconds=seconds))
        await admission.repository.accept(replace(new, config=config))

        claim = await claimed(admission.leases, new.key)

        assert claim.run.remaining_seconds == pytest.approx(given)
