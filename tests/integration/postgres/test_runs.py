"""The run row: admitted in order, claimed by one, taken over once its lease is gone."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from psycopg import AsyncConnection
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.core.events import Done, Usage
from starling.core.runs import RunConfig, RunLimits, RunResult
from starling.infra.postgres.broadcast import Broadcast
from starling.infra.postgres.runs import Connection, RunKey, RunRepository
from starling.infra.postgres.streams import RunReader
from starling.infra.postgres.writer import RunWriter
from tests.support.runs import a_run, claimed

CAP = 3


@dataclass
class Line:
    """Runs as they come and go, and which of them were given to the queue."""

    engine: AsyncEngine
    queued: list[RunKey] = field(default_factory=list[RunKey])

    def __post_init__(self) -> None:
        self.repository = RunRepository(self.engine, self._defer, cap=CAP)

    async def _defer(self, connection: Connection, keys: Sequence[RunKey]) -> None:
        self.queued += keys

    async def accept(self, *, thread: str = "thread", tenant: str = "default") -> RunKey:
        new = a_run(thread=thread, tenant=tenant)
        await self.repository.accept(new)
        return new.key

    async def end(self, key: RunKey) -> None:
        writer = RunWriter(self.engine, await claimed(self.repository, key), Broadcast())
        result = RunResult(status="succeeded", reply="Done.")
        await writer.end(result, Done(usage=Usage(), status="succeeded", reply="Done."), self.repository)
        await writer.close()

    async def claims(self, key: RunKey) -> bool:
        return await self.repository.claim(key, worker="w", lease_seconds=60, run_seconds=60) is not None


@pytest.fixture
def line(engine: AsyncEngine) -> Line:
    return Line(engine)


async def execute(url: str, statement: str) -> None:
    async with await AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(statement.encode())


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


async def test_a_run_is_claimed_by_one(line: Line) -> None:
    key = await line.accept()

    won = await asyncio.gather(*(line.claims(key) for _ in range(5)))

    assert sorted(won) == [False, False, False, False, True]


async def test_another_tenant_cannot_claim_it(line: Line) -> None:
    key = await line.accept()

    assert not await line.claims(RunKey("other", key.id))


async def test_an_expired_lease_is_taken_over_under_the_next_fence(line: Line, database_url: str) -> None:
    key = await line.accept()
    first = await claimed(line.repository, key)
    await execute(database_url, "UPDATE runs SET lease_until = now() - interval '1 second'")

    second = await claimed(line.repository, key)

    assert (first.run.fence, second.run.fence, second.run.crashes) == (1, 2, 1)
    assert await line.repository.renew({key.id: first.run}, lease_seconds=60) == frozenset()
    assert await line.repository.renew({key.id: second.run}, lease_seconds=60) == {key.id}


async def test_a_renewed_lease_holds(line: Line, database_url: str) -> None:
    key = await line.accept()
    claim = await claimed(line.repository, key)
    await execute(database_url, "UPDATE runs SET lease_until = now() - interval '1 second'")

    await line.repository.renew({key.id: claim.run}, lease_seconds=60)

    assert not await line.claims(key)


async def test_the_sweep_queues_what_nobody_holds(line: Line, database_url: str) -> None:
    released, expired, held = [await line.accept(thread=f"thread {number}") for number in range(3)]
    claim = await claimed(line.repository, released)
    await claimed(line.repository, expired)
    await claimed(line.repository, held)
    await line.repository.release([claim.run])
    await execute(database_url, "UPDATE runs SET lease_until = now() - interval '1 s' WHERE thread_id = 'thread 1'")
    line.queued.clear()

    found = await line.repository.sweep(patience_seconds=60)

    assert found == 2
    assert set(line.queued) == {released, expired}


async def test_the_sweep_queues_a_runnable_run_whose_job_was_lost(line: Line, database_url: str) -> None:
    key = await line.accept()
    line.queued.clear()

    early = await line.repository.sweep(patience_seconds=60)
    await execute(database_url, "UPDATE runs SET admitted_at = now() - interval '61 seconds'")
    late = await line.repository.sweep(patience_seconds=60)

    assert (early, late, line.queued) == (0, 1, [key])


async def test_the_sweep_admits_a_head_that_was_missed(line: Line, database_url: str) -> None:
    key = await line.accept()
    await execute(database_url, "UPDATE runs SET admitted_at = NULL")
    line.queued.clear()

    await line.repository.sweep(patience_seconds=60)

    assert line.queued == [key]


async def test_a_release_by_a_worker_that_lost_the_run_changes_nothing(line: Line, database_url: str) -> None:
    key = await line.accept()
    first = await claimed(line.repository, key)
    await execute(database_url, "UPDATE runs SET lease_until = now() - interval '1 second'")
    await claimed(line.repository, key)

    await line.repository.release([first.run])

    assert not await line.claims(key)


async def test_a_caller_may_ask_for_less_time_but_not_for_more(line: Line) -> None:
    for seconds, given in ((5.0, 5.0), (500.0, 60.0)):
        new = a_run(thread=f"{seconds}")
        config = RunConfig(limits=RunLimits(run_seconds=seconds))
        await line.repository.accept(replace(new, config=config))

        claim = await claimed(line.repository, new.key)

        assert claim.run.remaining_seconds == pytest.approx(given)
