"""Connections lost around a commit: each acknowledged write is stored exactly once."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.core.errors import DatabaseUnavailableError
from starling.core.events.run_events import Done, Thinking, Usage
from starling.core.ids import new_id
from starling.core.principal import DEFAULT_TENANT, Principal, Scope
from starling.core.runs import RunResult, RunStatus
from starling.infra.postgres.engine import ConnectionLimits, open_engine
from starling.infra.postgres.runs.acceptance import Connection, IdempotencyKey, NewRun, RunKey, RunRepository
from starling.infra.postgres.runs.broadcast import Broadcast
from starling.infra.postgres.runs.busy_thread_policy import Policy
from starling.infra.postgres.runs.documents import RunDocumentRepository
from starling.infra.postgres.runs.interrupts import InterruptAnswer, InterruptRepository, StoredInterrupt
from starling.infra.postgres.runs.leases import Leases
from starling.infra.postgres.runs.reader import RunReader
from starling.infra.postgres.runs.writer import RunWriter
from starling.infra.postgres.tables.access import audit
from starling.infra.postgres.tables.run_records import events, idempotency_keys, runs
from tests.support.run_factories import claimed, defer_nothing, new_question, new_run, wait_for_answer
from tests.support.tcp_proxy import Moment, ProxiedDatabase, proxied

MOMENTS: Sequence[Moment] = ("before", "during", "after")
KEY = IdempotencyKey("order-1", "hash")
CALLER = Principal(DEFAULT_TENANT, "", frozenset(Scope))
FLUSH = b"WITH fenced AS"


@dataclass
class Shaky:
    """A repository whose connections to Postgres can be cut, and a reader with a direct connection."""

    database: ProxiedDatabase
    engine: AsyncEngine
    direct: AsyncEngine
    queued: list[RunKey] = field(default_factory=list[RunKey])

    def __post_init__(self) -> None:
        self.repository = RunRepository(self.engine, self._defer, cap=8)
        self.leases = Leases(self.direct, self._defer, self.repository.admit, graph_version=1)
        self.interrupts = InterruptRepository(self.engine, self.repository)
        self.reader = RunReader(self.direct, Broadcast(), poll_seconds=0.05)

    async def _defer(self, connection: Connection, keys: Sequence[RunKey]) -> None:
        self.queued += keys

    async def writer(self, key: RunKey) -> RunWriter:
        return RunWriter(self.engine, await claimed(self.leases, key), Broadcast())

    async def asks(self) -> tuple[RunKey, StoredInterrupt]:
        """Return a run that waits for the answer to a question."""
        new = new_run()
        question = new_question(new.key.id)
        await RunRepository(self.direct, self._defer, cap=8).accept(new)
        writer = RunWriter(self.direct, await claimed(self.leases, new.key), Broadcast())
        await wait_for_answer(writer, question, self.interrupts)
        await writer.close()
        return new.key, question

    async def answers(self, key: RunKey) -> list[tuple[str, Any]]:
        return [(item.state, item.payload) for item in await self.interrupts.of_run(key)]

    async def accepted(self) -> list[tuple[str, int]]:
        """Return the stored runs with their number of events."""
        query = (
            select(runs.c.id, func.count(events.c.seq))
            .join(events, (events.c.run_id == runs.c.id) & (events.c.tenant == runs.c.tenant), isouter=True)
            .group_by(runs.c.id)
        )
        async with self.direct.connect() as connection:
            return [(row[0], row[1]) for row in await connection.execute(query)]

    async def arrivals(self) -> list[int]:
        async with self.direct.connect() as connection:
            return list(await connection.scalars(select(runs.c.arrival).order_by(runs.c.arrival)))

    async def numbers_and_texts(self, key: RunKey) -> list[tuple[int, str]]:
        return [(event.seq, event.data.get("content", event.type)) for event in await self.reader.events(key)]


@pytest.fixture
async def shaky(database_url: str, engine: AsyncEngine) -> AsyncGenerator[Shaky]:
    async with proxied(database_url) as database:
        through = open_engine(database.url)
        yield Shaky(database, through, engine)
        await through.dispose()


def with_key(new: NewRun, key: IdempotencyKey = KEY) -> NewRun:
    return replace(new, idempotency=key)


def say(text: str) -> Thinking:
    return Thinking(content=text, message_id="m")


@pytest.mark.parametrize("policy", ["enqueue", "reject", "interrupt"])
@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_run_is_accepted_once_whenever_its_connection_dies(
    shaky: Shaky, moment: Moment, policy: Policy
) -> None:
    new = replace(new_run(), policy=policy)
    shaky.database.proxy.cut(moment)

    accepted = await shaky.repository.accept(new)

    assert shaky.database.proxy.cuts == 1
    assert (accepted.started.run_id, accepted.started.trace_id) == (new.key.id, new.trace_id)
    assert await shaky.accepted() == [(new.key.id, 1)]
    assert await shaky.arrivals() == [1]


@pytest.mark.parametrize("moment", MOMENTS)
async def test_an_idempotency_key_stands_for_that_one_run(shaky: Shaky, moment: Moment) -> None:
    new = new_run()
    shaky.database.proxy.cut(moment)

    first = await shaky.repository.accept(with_key(new))
    again = await shaky.repository.accept(with_key(new_run()))

    assert first.started.run_id == again.started.run_id == new.key.id
    assert await shaky.accepted() == [(new.key.id, 1)]


async def test_connections_that_die_again_and_again_are_survived_too(shaky: Shaky) -> None:
    new = new_run()
    shaky.database.proxy.cut("before", times=2)

    await shaky.repository.accept(new)

    assert shaky.database.proxy.cuts == 2
    assert await shaky.accepted() == [(new.key.id, 1)]


async def test_a_postgres_that_stays_away_refuses_the_request(shaky: Shaky) -> None:
    repository = RunRepository(shaky.engine, defer_nothing, cap=8, retry_seconds=0.3)
    await shaky.database.proxy.stop()

    with pytest.raises(DatabaseUnavailableError):
        await repository.accept(new_run())

    assert await shaky.accepted() == []


async def test_a_postgres_that_comes_back_in_time_takes_the_request(shaky: Shaky) -> None:
    repository = RunRepository(shaky.engine, defer_nothing, cap=8, retry_seconds=50)
    new, port = new_run(), shaky.database.proxy.port
    await shaky.database.proxy.stop()
    accepting = asyncio.get_running_loop().create_task(repository.accept(new))
    await asyncio.wait([accepting], timeout=0.3)
    assert not accepting.done()

    await shaky.database.proxy.start(port)
    await accepting

    assert await shaky.accepted() == [(new.key.id, 1)]


async def test_connections_that_are_all_in_use_are_waited_for_once(database_url: str) -> None:
    narrow = open_engine(database_url, ConnectionLimits(size=1, free_seconds=0.2))
    async with asyncio.timeout(60), narrow.connect():
        with pytest.raises(DatabaseUnavailableError, match="stayed in use"):
            await RunRepository(narrow, defer_nothing, cap=8, retry_seconds=600).accept(new_run())
    await narrow.dispose()


@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_batch_is_written_once_whenever_its_connection_dies(shaky: Shaky, moment: Moment) -> None:
    new = new_run()
    await shaky.repository.accept(new)
    writer = await shaky.writer(new.key)
    shaky.database.proxy.cut(moment, FLUSH)
    writer.emit(say("one"))
    writer.emit(say("two"))

    await writer.flush()
    writer.emit(say("three"))
    await writer.flush()

    assert shaky.database.proxy.cuts == 1
    assert await shaky.numbers_and_texts(new.key) == [(1, "run_started"), (2, "one"), (3, "two"), (4, "three")]
    await writer.close()


@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_run_ends_once_and_admits_the_next_whenever_its_connection_dies(shaky: Shaky, moment: Moment) -> None:
    new, following = new_run(), new_run()
    await shaky.repository.accept(new)
    await shaky.repository.accept(following)
    writer = await shaky.writer(new.key)
    shaky.database.proxy.cut(moment)

    await writer.end(
        RunResult(status="succeeded", reply="Done."),
        Done(usage=Usage(), status="succeeded", reply="Done."),
        shaky.repository,
    )

    assert shaky.database.proxy.cuts == 1
    assert await shaky.numbers_and_texts(new.key) == [(1, "run_started"), (2, "done")]
    assert (await RunDocumentRepository(shaky.engine).row(new.key)).status is RunStatus.SUCCEEDED
    assert set(shaky.queued) == {new.key, following.key}
    assert await claimed(shaky.leases, following.key)
    await writer.close()


async def test_a_run_whose_end_is_in_doubt_needs_no_second_connection(shaky: Shaky) -> None:
    narrow = open_engine(shaky.database.url, ConnectionLimits(size=1, free_seconds=0.1))
    new = new_run()
    await shaky.repository.accept(new)
    writer = RunWriter(narrow, await claimed(shaky.leases, new.key), Broadcast(), retry_seconds=2)
    shaky.database.proxy.cut("after")

    done = Done(usage=Usage(), status="succeeded", reply="Done.")
    await writer.end(RunResult(status="succeeded", reply="Done."), done, shaky.repository)

    assert await shaky.numbers_and_texts(new.key) == [(1, "run_started"), (2, "done")]
    await writer.close()
    await narrow.dispose()


@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_message_answers_once_whenever_its_connection_dies(shaky: Shaky, moment: Moment) -> None:
    key, _ = await shaky.asks()
    shaky.database.proxy.cut(moment)

    answered = await shaky.interrupts.answer_thread(CALLER, "thread", "That one.")

    assert shaky.database.proxy.cuts == 1
    assert answered == (key, 2)
    (only,) = await shaky.answers(key)
    assert only == ("resolved", {"answer": "That one."})
    assert shaky.queued.count(key) >= 2  # when it was accepted, and now
    assert await claimed(shaky.leases, key)


@pytest.mark.parametrize("moment", MOMENTS)
async def test_an_answer_may_be_sent_again_whenever_its_connection_died(shaky: Shaky, moment: Moment) -> None:
    key, question = await shaky.asks()
    answer = InterruptAnswer(question.id, "resolved", {"answer": "That one."})
    shaky.database.proxy.cut(moment)

    with pytest.raises(DatabaseUnavailableError):
        await shaky.interrupts.answer(key, [answer], "somebody")
    await shaky.interrupts.answer(key, [answer], "somebody")

    assert await shaky.answers(key) == [("resolved", {"answer": "That one."})]
    async with shaky.direct.connect() as connection:
        assert await connection.scalar(select(func.count()).select_from(audit)) == 1


async def test_a_request_that_is_refused_leaves_its_key_free(shaky: Shaky) -> None:
    new = new_run(new_id())
    await shaky.repository.accept(new)

    with pytest.raises(Exception, match="runs_pkey"):
        await shaky.repository.accept(with_key(new))

    async with shaky.direct.connect() as connection:
        assert await connection.scalar(select(func.count()).select_from(idempotency_keys)) == 0
