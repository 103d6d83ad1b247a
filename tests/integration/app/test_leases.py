"""Workers renew the leases of their runs, stop a run before its lease expires, and hand runs back."""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import pytest
from psycopg import AsyncConnection
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.app.worker import worker as worker_module
from starling.app.worker.heartbeat import Heartbeat
from starling.app.worker.worker import RunHandlers, Worker
from starling.core.ids import new_id
from starling.core.settings.schema import Limits
from starling.infra.postgres.runs.acceptance import Claim, RunKey, RunRepository
from starling.infra.postgres.runs.leases import LeaseRenewer, Leases
from starling.infra.queue import run_queue
from tests.support.gateway_harness import wait_for
from tests.support.run_factories import new_run
from tests.support.run_queues import open_queue
from tests.support.worker_runtime import running_worker

_NOWHERE = "postgresql://nobody@127.0.0.1:9/none"


# fetching a job waits for an advisory lock
_SLOW_FETCHING = """
CREATE FUNCTION wait_at_gate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN NEW; END $$;
CREATE TRIGGER gate BEFORE UPDATE ON procrastinate_jobs FOR EACH ROW
WHEN (NEW.status = 'doing' AND NEW.task_name = 'starling.run') EXECUTE FUNCTION wait_at_gate()"""
_IS_FETCHING = "SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


@dataclass
class RecordingHandlers:
    """The handlers of a test's workers, with an event per fence for start, permission to end, and cancellation."""

    drained: asyncio.Event = field(default_factory=asyncio.Event)
    began: defaultdict[int, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))
    may_end: defaultdict[int, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))
    cancelled_at: defaultdict[int, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))
    claims: list[Claim] = field(default_factory=list[Claim])
    alone: list[Claim] = field(default_factory=list[Claim])
    parked: list[Claim] = field(default_factory=list[Claim])
    cancelled: list[str] = field(default_factory=list[str])
    swept: asyncio.Event = field(default_factory=asyncio.Event)

    async def execute(self, claim: Claim) -> None:
        self.claims.append(claim)
        self.began[claim.run.fence].set()
        try:
            await self.may_end[claim.run.fence].wait()
        except asyncio.CancelledError:
            self.cancelled_at[claim.run.fence].set()
            raise

    def has_begun(self, key: RunKey) -> bool:
        return any(claim.run.id == key.id for claim in self.claims)

    async def execute_alone(self, claim: Claim) -> None:
        self.alone.append(claim)
        await self.execute(claim)

    async def sweep(self) -> None:
        self.swept.set()

    async def park(self, claim: Claim) -> None:
        self.parked.append(claim)
        self.began[claim.run.fence].set()


@dataclass(frozen=True)
class WorkerHarness:
    """A database with runs, in which a test starts and stops workers."""

    url: str
    engine: AsyncEngine
    handlers: RecordingHandlers

    @asynccontextmanager
    async def worker(
        self, *, lease: float = 60.0, heartbeat_url: str = "", slots: int = 48, isolated: int = 4
    ) -> AsyncGenerator[Worker]:
        """Run a worker while the context lasts."""
        async with open_queue(self.url) as queue:
            runs = RunRepository(self.engine, queue.defer, cap=8)
            renewals = LeaseRenewer(heartbeat_url or self.url, lease_seconds=lease)
            worker = Worker(
                queue,
                Leases(self.engine, queue.defer, runs.admit, graph_version=1),
                Heartbeat(renewals, lease, self.handlers.cancelled.append),
                RunHandlers(
                    self.handlers.execute,
                    self.handlers.execute_alone,
                    self.handlers.park,
                    self.handlers.drained.set,
                    [self.handlers.sweep],
                ),
                Limits(lease_seconds=lease, drain_seconds=60, runs_per_worker=slots),
            )
            worker.isolated_runs = isolated
            worker.name = f"{worker.name}.{new_id()}"  # others may be in this process
            async with running_worker(worker):
                yield worker

    async def accept(self, thread: str = "thread") -> RunKey:
        async with open_queue(self.url) as queue:
            new = new_run(thread=thread)
            await RunRepository(self.engine, queue.defer, cap=8).accept(new)
            return new.key

    async def execute(self, statement: str) -> None:
        async with await AsyncConnection.connect(self.url, autocommit=True) as connection:
            await connection.execute(statement.encode())

    async def is_held_by(self, worker: str) -> bool:
        async with await AsyncConnection.connect(self.url) as connection:
            row = await (await connection.execute("SELECT status, worker FROM runs")).fetchone()
        return row == ("running", worker)


@pytest.fixture
def harness(database_url: str, engine: AsyncEngine) -> WorkerHarness:
    return WorkerHarness(database_url, engine, RecordingHandlers())


async def test_stopped_worker_hands_back_its_runs_without_counting_a_crash(harness: WorkerHarness) -> None:
    await harness.accept()
    async with harness.worker():
        await harness.handlers.began[1].wait()

    async with harness.worker():
        await harness.handlers.began[2].wait()

    assert harness.handlers.cancelled_at[1].is_set()
    assert [claim.run.crashes for claim in harness.handlers.claims] == [0, 0]


async def test_worker_without_free_slots_still_sweeps(harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "_SWEEP_SECONDS", 0.1)
    await harness.accept()
    async with harness.worker(slots=1):
        await harness.handlers.began[1].wait()

        harness.handlers.swept.clear()
        await asyncio.wait_for(harness.handlers.swept.wait(), 60)

    assert harness.handlers.cancelled_at[1].is_set()


async def test_draining_worker_lets_executions_end_and_hands_back_unfinished_runs(harness: WorkerHarness) -> None:
    await harness.accept()
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(harness.worker())
        await harness.handlers.began[1].wait()
        first.draining.set()
        await harness.handlers.drained.wait()
        await stack.enter_async_context(harness.worker())
        harness.handlers.may_end[1].set()

        await harness.handlers.began[2].wait()

    assert not harness.handlers.cancelled_at[1].is_set()
    assert [claim.run.crashes for claim in harness.handlers.claims] == [0, 0]


async def test_draining_worker_claims_no_more_runs(harness: WorkerHarness) -> None:
    await harness.accept()
    async with harness.worker() as worker:
        await harness.handlers.began[1].wait()
        worker.draining.set()
        await harness.handlers.drained.wait()
        second = await harness.accept(thread="another")
        harness.handlers.may_end[1].set()

    assert second.id not in {claim.run.id for claim in harness.handlers.claims}


async def test_run_fetched_while_draining_begins_is_queued_for_another_worker(harness: WorkerHarness) -> None:
    await harness.execute(_SLOW_FETCHING)
    async with await AsyncConnection.connect(harness.url, autocommit=True) as gate, AsyncExitStack() as stack:
        await gate.execute("SELECT pg_advisory_lock(7)")
        first = await stack.enter_async_context(harness.worker())
        await harness.accept()
        while not (await (await gate.execute(_IS_FETCHING)).fetchall()):  # noqa: ASYNC110 - it is Postgres that waits
            await asyncio.sleep(0.01)
        first.draining.set()
        await harness.handlers.drained.wait()
        await stack.enter_async_context(harness.worker())
        await gate.execute("SELECT pg_advisory_unlock(7)")

        await harness.handlers.began[1].wait()

        [claim] = harness.handlers.claims
        assert not await harness.is_held_by(first.name)
        assert claim.run.fence == 1


async def test_worker_stopped_while_draining_does_not_wait_for_its_runs(harness: WorkerHarness) -> None:
    await harness.accept()
    async with harness.worker() as worker:
        await harness.handlers.began[1].wait()
        worker.draining.set()
        await harness.handlers.drained.wait()

    assert harness.handlers.cancelled_at[1].is_set()
    async with harness.worker():
        await harness.handlers.began[2].wait()
    assert harness.handlers.claims[1].run.crashes == 0


async def test_blocked_event_loop_keeps_its_leases(harness: WorkerHarness) -> None:
    lease = 3.0
    key = await harness.accept()
    async with open_queue(harness.url) as queue, harness.worker(lease=lease):
        await harness.handlers.began[1].wait()
        time.sleep(1.5 * lease)  # noqa: ASYNC251 - a tool that blocks
        leases = Leases(
            harness.engine, queue.defer, RunRepository(harness.engine, queue.defer, cap=8).admit, graph_version=1
        )
        taken = await leases.claim(key, worker="another", lease_seconds=60, run_seconds=60)
        await leases.sweep(grace_seconds=60, lease_seconds=60)

        assert taken is None
        assert not harness.handlers.cancelled_at[1].is_set()


async def test_run_whose_lease_cannot_be_renewed_is_stopped_and_handed_back(harness: WorkerHarness) -> None:
    await harness.accept()
    async with harness.worker(lease=1.5, heartbeat_url=_NOWHERE):
        await harness.handlers.began[2].wait()

    assert harness.handlers.cancelled_at[1].is_set()
    assert harness.handlers.claims[1].run.crashes == 0


async def test_runs_are_stopped_after_the_machine_slept_past_their_leases(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    awake = time.clock_gettime

    def after_sleep(which: int) -> float:
        return awake(which) + 60  # the other clocks stood still

    await harness.accept()
    async with harness.worker(lease=30, heartbeat_url=_NOWHERE):
        await harness.handlers.began[1].wait()

        monkeypatch.setattr(time, "clock_gettime", after_sleep)

        await asyncio.wait_for(harness.handlers.cancelled_at[1].wait(), 20)


async def test_run_claimed_by_another_worker_is_stopped_and_not_released(harness: WorkerHarness) -> None:
    await harness.accept()
    async with harness.worker(lease=3):
        await harness.handlers.began[1].wait()
        await harness.execute("UPDATE runs SET fence = fence + 1, worker = 'another'")

        await harness.handlers.cancelled_at[1].wait()

    assert await harness.is_held_by("another")


async def test_renewal_reports_a_run_to_cancel(harness: WorkerHarness) -> None:
    key = await harness.accept()
    async with harness.worker(lease=2):
        await harness.handlers.began[1].wait()
        await harness.execute("UPDATE runs SET cancel_requested = true")

        await wait_for(lambda: bool(harness.handlers.cancelled))

    assert set(harness.handlers.cancelled) == {key.id}


@pytest.mark.parametrize("times", [1, 2])
async def test_run_whose_worker_ended_goes_on_beside_others_once_and_alone_the_second_time(
    harness: WorkerHarness, times: int
) -> None:
    await harness.accept()
    await harness.execute("UPDATE runs SET status = 'running', fence = 4")
    if times == 2:
        await harness.execute("UPDATE runs SET isolation = 'lost'")

    async with harness.worker():
        await harness.handlers.began[5].wait()

    assert len(harness.handlers.alone) == times - 1


async def test_suspected_runs_that_wait_for_a_process_keep_no_slot_and_begin_when_one_ends(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_queue, "_FETCH_SECONDS", 600)
    for thread in ("one", "two", "three"):
        await harness.accept(thread)
    await harness.execute("UPDATE runs SET isolation = 'due'")
    healthy = await harness.accept("four")

    async with harness.worker(slots=3, isolated=1):  # a tenant gets two of them
        await wait_for(lambda: harness.handlers.has_begun(healthy))
        waited = len(harness.handlers.alone)
        for fence in range(1, 9):
            harness.handlers.may_end[fence].set()
        await wait_for(lambda: len({claim.run.id for claim in harness.handlers.alone}) == 3)

    assert waited == 1


async def test_run_that_crashed_too_often_is_parked_instead_of_executed(harness: WorkerHarness) -> None:
    await harness.accept()
    await harness.execute("UPDATE runs SET status = 'running', fence = 4, crashes = 2, isolation = 'alone'")

    async with harness.worker():
        await harness.handlers.began[5].wait()

    assert [claim.run.crashes for claim in harness.handlers.parked] == [3]
    assert harness.handlers.claims == []
