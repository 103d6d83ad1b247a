"""Workers keep the leases of their runs, stop in time when they can't, and hand runs back."""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import pytest
from psycopg import AsyncConnection
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.app.worker.heartbeat import Heartbeat
from starling.app.worker.worker import RunHandlers, Worker, running_worker
from starling.core.settings import Limits
from starling.infra.postgres.runs.acceptance import Claim, RunKey, RunRepository
from starling.infra.postgres.runs.lease_renewal import LeaseRenewer
from starling.infra.postgres.runs.leases import Leases
from starling.infra.queue.run_queue import open_queue
from tests.support.gateway_harness import wait_for
from tests.support.run_factories import new_run

_NOWHERE = "postgresql://nobody@127.0.0.1:9/none"


# whoever fetches a run's job waits until a lock is free
_SLOW_FETCHING = """
CREATE FUNCTION wait_at_gate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN NEW; END $$;
CREATE TRIGGER gate BEFORE UPDATE ON procrastinate_jobs FOR EACH ROW
WHEN (NEW.status = 'doing' AND NEW.task_name = 'starling.run') EXECUTE FUNCTION wait_at_gate()"""
_IS_FETCHING = "SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


@dataclass
class ActiveRuns:
    """What the workers of a test do with runs: by number of the life, it begins, may end, and was cut off."""

    drained: asyncio.Event = field(default_factory=asyncio.Event)
    began: defaultdict[int, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))
    may_end: defaultdict[int, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))
    cut_off: defaultdict[int, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))
    claims: list[Claim] = field(default_factory=list[Claim])
    parked: list[Claim] = field(default_factory=list[Claim])
    cancelled: list[str] = field(default_factory=list[str])
    swept: asyncio.Event = field(default_factory=asyncio.Event)

    async def live(self, claim: Claim) -> None:
        self.claims.append(claim)
        self.began[claim.run.fence].set()
        try:
            await self.may_end[claim.run.fence].wait()
        except asyncio.CancelledError:
            self.cut_off[claim.run.fence].set()
            raise

    async def sweep(self) -> None:
        self.swept.set()

    async def park(self, claim: Claim) -> None:
        self.parked.append(claim)
        self.began[claim.run.fence].set()


@dataclass(frozen=True)
class Yard:
    """A database with runs, and workers as they come and go."""

    url: str
    engine: AsyncEngine
    lives: ActiveRuns

    @asynccontextmanager
    async def worker(self, *, lease: float = 60.0, heartbeat_url: str = "", slots: int = 48) -> AsyncGenerator[Worker]:
        """Let a worker work while the block lasts."""
        async with open_queue(self.url) as queue:
            runs = RunRepository(self.engine, queue.defer, cap=8)
            renewals = LeaseRenewer(heartbeat_url or self.url, lease_seconds=lease)
            worker = Worker(
                queue,
                Leases(self.engine, queue.defer, runs.admit),
                Heartbeat(renewals, lease, self.lives.cancelled.append),
                RunHandlers(self.lives.live, self.lives.park, self.lives.drained.set, [self.lives.sweep]),
                Limits(lease_seconds=lease, drain_seconds=60, runs_per_worker=slots),
            )
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
def yard(database_url: str, engine: AsyncEngine) -> Yard:
    return Yard(database_url, engine, ActiveRuns())


async def test_what_a_worker_that_stops_leaves_unfinished_another_has_at_once_and_it_is_no_crash(yard: Yard) -> None:
    await yard.accept()
    async with yard.worker():
        await yard.lives.began[1].wait()

    async with yard.worker():
        await yard.lives.began[2].wait()

    assert yard.lives.cut_off[1].is_set()
    assert [claim.run.crashes for claim in yard.lives.claims] == [0, 0]


async def test_a_worker_whose_hands_are_full_still_looks_for_what_nobody_holds(yard: Yard) -> None:
    await yard.accept()
    async with yard.worker(slots=1):
        await yard.lives.began[1].wait()

        yard.lives.swept.clear()
        await asyncio.wait_for(yard.lives.swept.wait(), 30)

    assert yard.lives.cut_off[1].is_set()


async def test_a_worker_that_drains_lets_lives_end_and_hands_back_what_is_unfinished(yard: Yard) -> None:
    await yard.accept()
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(yard.worker())
        await yard.lives.began[1].wait()
        first.drain()
        await yard.lives.drained.wait()
        await stack.enter_async_context(yard.worker())
        yard.lives.may_end[1].set()

        await yard.lives.began[2].wait()

    assert not yard.lives.cut_off[1].is_set()
    assert [claim.run.crashes for claim in yard.lives.claims] == [0, 0]


async def test_a_worker_that_drains_takes_nothing_more(yard: Yard) -> None:
    await yard.accept()
    async with yard.worker() as worker:
        await yard.lives.began[1].wait()
        worker.drain()
        await yard.lives.drained.wait()
        second = await yard.accept(thread="another")
        yard.lives.may_end[1].set()

    assert second.id not in {claim.run.id for claim in yard.lives.claims}


async def test_what_a_worker_that_drains_was_just_fetching_another_has_as_if_nothing_had_been(yard: Yard) -> None:
    await yard.execute(_SLOW_FETCHING)
    async with await AsyncConnection.connect(yard.url, autocommit=True) as gate, AsyncExitStack() as stack:
        await gate.execute("SELECT pg_advisory_lock(7)")
        first = await stack.enter_async_context(yard.worker())
        await yard.accept()
        while not (await (await gate.execute(_IS_FETCHING)).fetchall()):  # noqa: ASYNC110 - it is Postgres that waits
            await asyncio.sleep(0.01)
        first.drain()
        await yard.lives.drained.wait()
        await stack.enter_async_context(yard.worker())
        await gate.execute("SELECT pg_advisory_unlock(7)")

        await yard.lives.began[1].wait()

        [claim] = yard.lives.claims
        assert not await yard.is_held_by(first.name)
        assert claim.run.fence == 1


async def test_who_is_stopped_while_draining_waits_for_nobody(yard: Yard) -> None:
    await yard.accept()
    async with yard.worker() as worker:
        await yard.lives.began[1].wait()
        worker.drain()
        await yard.lives.drained.wait()

    assert yard.lives.cut_off[1].is_set()
    async with yard.worker():
        await yard.lives.began[2].wait()
    assert yard.lives.claims[1].run.crashes == 0


async def test_a_blocked_loop_keeps_its_runs(yard: Yard) -> None:
    lease = 4.0
    key = await yard.accept()
    async with open_queue(yard.url) as queue, yard.worker(lease=lease):
        await yard.lives.began[1].wait()
        time.sleep(1.5 * lease)  # noqa: ASYNC251 - a tool that blocks
        leases = Leases(yard.engine, queue.defer, RunRepository(yard.engine, queue.defer, cap=8).admit)
        taken = await leases.claim(key, worker="another", lease_seconds=60, run_seconds=60)
        await leases.sweep(grace_seconds=60)

        assert taken is None
        assert not yard.lives.cut_off[1].is_set()


async def test_a_run_whose_lease_cannot_be_renewed_is_stopped_and_handed_back(yard: Yard) -> None:
    await yard.accept()
    async with yard.worker(lease=1.5, heartbeat_url=_NOWHERE):
        await yard.lives.began[2].wait()

    assert yard.lives.cut_off[1].is_set()
    assert yard.lives.claims[1].run.crashes == 0


async def test_the_runs_of_a_machine_that_slept_past_their_leases_are_stopped(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    awake = time.clock_gettime

    def after_sleep(which: int) -> float:
        return awake(which) + 60  # its other clocks stood still

    await yard.accept()
    async with yard.worker(lease=60, heartbeat_url=_NOWHERE):
        await yard.lives.began[1].wait()

        monkeypatch.setattr(time, "clock_gettime", after_sleep)

        await asyncio.wait_for(yard.lives.cut_off[1].wait(), 20)


async def test_a_run_that_another_worker_has_is_stopped_and_left_to_it(yard: Yard) -> None:
    await yard.accept()
    async with yard.worker(lease=6):
        await yard.lives.began[1].wait()
        await yard.execute("UPDATE runs SET fence = fence + 1, worker = 'another'")

        await yard.lives.cut_off[1].wait()

    assert await yard.is_held_by("another")


async def test_a_run_that_is_to_be_cancelled_is_told_of_with_the_renewal(yard: Yard) -> None:
    key = await yard.accept()
    async with yard.worker(lease=2):
        await yard.lives.began[1].wait()
        await yard.execute("UPDATE runs SET cancel_requested = true")

        await wait_for(lambda: bool(yard.lives.cancelled))

    assert set(yard.lives.cancelled) == {key.id}


async def test_a_run_that_was_cut_off_too_often_is_parked_instead_of_executed(yard: Yard) -> None:
    await yard.accept()
    await yard.execute("UPDATE runs SET status = 'running', fence = 4, crashes = 2")

    async with yard.worker():
        await yard.lives.began[5].wait()

    assert [claim.run.crashes for claim in yard.lives.parked] == [3]
    assert yard.lives.claims == []
