"""Event streams: read in any process, from any number, each event once; pruned events become a gap."""

import asyncio
import gc
import random
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from time import monotonic
from typing import Any

import pytest
from psycopg import AsyncConnection
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.core.events.run_events import Done, Thinking, Usage
from starling.core.events.stream import ANY_EVENT
from starling.core.run_document.rows import EventRow
from starling.core.runs import RunResult
from starling.infra.postgres.engine import fetch_autocommit, open_engine
from starling.infra.postgres.runs import reader as reader_module
from starling.infra.postgres.runs.acceptance import RunKey, RunRepository
from starling.infra.postgres.runs.broadcast import Broadcast, NoticeSender
from starling.infra.postgres.runs.leases import Leases
from starling.infra.postgres.runs.reader import EventPage, RunReader
from starling.infra.postgres.runs.writer import RunWriter
from tests.support.broadcasts import open_broadcast
from tests.support.run_factories import claimed, defer_nothing, new_run
from tests.support.soak import rounds
from tests.support.tcp_proxy import proxied

RECONNECTS = 30
POLL_SECONDS = 0.2  # seconds between polls, in tests without notifications
_LISTENING = """
SELECT pid FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'starling-listen' AND query LIKE '%pg_locks%'"""

_BLOCKED = b"SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
_END_BLOCKED = b"SELECT pg_terminate_backend(pid) FROM (" + _BLOCKED + b")"


@dataclass
class Writing:
    """A run written by a process without readers."""

    key: RunKey
    writer: RunWriter
    repository: RunRepository

    async def say(self, *texts: str) -> None:
        for text in texts:
            self.writer.emit(Thinking(content=text, message_id="m"))
        await self.writer.flush()

    async def end(self) -> None:
        result = RunResult(status="succeeded", reply="Done.")
        await self.writer.end(result, Done(usage=Usage(), status="succeeded", reply="Done."), self.repository)


@pytest.fixture
async def writing(engine: AsyncEngine) -> AsyncGenerator[Writing]:
    repository = RunRepository(engine, defer_nothing, cap=8)
    new = new_run()
    await repository.accept(new)
    claim = await claimed(Leases(engine, defer_nothing, repository.admit, graph_version=1), new.key)
    notices = NoticeSender(engine)
    writer = RunWriter(engine, claim, Broadcast(notices=notices))
    yield Writing(new.key, writer, repository)
    await writer.close()
    await notices.close()


async def trim(url: str, key: RunKey, up_to: int) -> None:
    """Delete events of a run, as retention does."""
    async with await AsyncConnection.connect(url) as connection:
        await connection.execute(b"DELETE FROM events WHERE run_id = %s AND seq <= %s", (key.id, up_to))
        await connection.execute(b"UPDATE runs SET trimmed = %s WHERE id = %s", (up_to, key.id))


async def read(reader: RunReader, key: RunKey, after: int = 0) -> list[EventRow]:
    async with asyncio.timeout(60):
        return [event async for event in reader.follow(key, after=after)]


def numbers_and_types(events: Sequence[EventRow]) -> list[tuple[int, str]]:
    return [(event.seq, event.type) for event in events]


@rounds([0], soak=[1, 2, 3, 4], name="seed")
async def test_reconnecting_reader_of_two_processes_gets_each_event_once(
    writing: Writing, engine: AsyncEngine, database_url: str, seed: int
) -> None:
    """The reader disconnects after a random number of events and resumes in either process during the run."""
    chance = random.Random(seed)
    async with AsyncExitStack() as stack, asyncio.timeout(120), asyncio.TaskGroup() as group:
        broadcasts = [await stack.enter_async_context(open_broadcast(database_url)) for _ in range(2)]
        readers = [RunReader(engine, broadcast, poll_seconds=POLL_SECONDS) for broadcast in broadcasts]
        group.create_task(_goes_on(writing, random.Random(seed + 1000)))
        pieces: list[EventRow] = []
        for _ in range(RECONNECTS):
            most = chance.randint(0, 12)
            pieces += await _piece(chance.choice(readers), writing.key, pieces[-1].seq if pieces else 0, most)
        pieces += await read(readers[0], writing.key, pieces[-1].seq if pieces else 0)

    whole = await read(RunReader(engine, Broadcast()), writing.key)
    assert [event.seq for event in whole] == list(range(1, len(whole) + 1))
    assert pieces == whole
    assert whole[-1].type == "done"


async def _goes_on(writing: Writing, chance: random.Random) -> None:
    for number in range(120):
        await writing.say(*(f"{number}.{part}" for part in range(chance.randint(1, 5))))
        await asyncio.sleep(0)
    await writing.end()


async def _piece(reader: RunReader, key: RunKey, after: int, most: int) -> list[EventRow]:
    taken: list[EventRow] = []
    stream = reader.follow(key, after=after)
    while len(taken) < most and (event := await anext(stream, None)):
        taken.append(event)
    await stream.aclose()
    return taken


async def test_pruned_events_are_one_gap_and_done_still_follows(
    writing: Writing, engine: AsyncEngine, database_url: str
) -> None:
    await writing.say(*"abcdef")
    await writing.end()  # number 8
    await trim(database_url, writing.key, 5)
    reader = RunReader(engine, Broadcast())

    whole, later, at_the_edge = [await read(reader, writing.key, after) for after in (0, 3, 5)]

    assert numbers_and_types(whole) == [(5, "gap"), (6, "thinking"), (7, "thinking"), (8, "done")]
    assert whole[0].data == {"type": "gap", "from": 1, "to": 5}
    assert ANY_EVENT.validate_python(whole[0].data).type == "gap"
    assert later[0].data == {"type": "gap", "from": 4, "to": 5}
    assert later[1:] == whole[1:]
    assert at_the_edge == whole[1:]


async def test_reading_resumes_after_the_number_of_a_gap(
    writing: Writing, engine: AsyncEngine, database_url: str
) -> None:
    await writing.say(*"abcdef")
    await writing.end()
    await trim(database_url, writing.key, 7)
    reader = RunReader(engine, Broadcast())

    (gap,) = await _piece(reader, writing.key, 0, 1)

    assert numbers_and_types(await read(reader, writing.key, gap.seq)) == [(8, "done")]


async def test_unfinished_run_is_read_across_a_gap(writing: Writing, engine: AsyncEngine, database_url: str) -> None:
    await writing.say(*"abc")  # numbers 2 to 4
    await trim(database_url, writing.key, 3)
    stream = RunReader(engine, Broadcast(), poll_seconds=POLL_SECONDS).follow(writing.key)

    first = [await anext(stream), await anext(stream)]
    await writing.end()
    rest = [event async for event in stream]

    assert numbers_and_types([*first, *rest]) == [(3, "gap"), (4, "thinking"), (5, "done")]


async def test_done_received_between_two_queries_is_delivered(writing: Writing, engine: AsyncEngine) -> None:
    broadcast = Broadcast()

    class Looking(RunReader):
        async def page(self, key: RunKey, after: int) -> EventPage:
            page = await super().page(key, after)
            await writing.end()
            broadcast.publish(key.id, (await super().page(key, after)).events)
            return page

    rest = await read(Looking(engine, broadcast), writing.key, 1)

    assert numbers_and_types(rest) == [(2, "done")]


@pytest.mark.parametrize("after", [2, 3, 10**6, 2**63 - 1])
async def test_reading_after_the_last_event_of_an_ended_run_yields_nothing(
    writing: Writing, engine: AsyncEngine, after: int
) -> None:
    await writing.end()  # number 2

    assert await read(RunReader(engine, Broadcast()), writing.key, after) == []


async def test_reader_beyond_the_last_number_ends_with_the_run(writing: Writing, engine: AsyncEngine) -> None:
    reading = asyncio.get_running_loop().create_task(
        read(RunReader(engine, Broadcast(), poll_seconds=POLL_SECONDS), writing.key, 10**9)
    )
    await writing.say("a")
    await writing.end()

    assert await reading == []


async def test_fully_pruned_stream_ends(writing: Writing, engine: AsyncEngine, database_url: str) -> None:
    await writing.say("a")
    await writing.end()
    await trim(database_url, writing.key, 3)

    assert await read(RunReader(engine, Broadcast()), writing.key) == []


async def test_stream_of_another_tenant_is_empty(writing: Writing, engine: AsyncEngine) -> None:
    await writing.end()

    assert await read(RunReader(engine, Broadcast()), RunKey("other", writing.key.id)) == []


async def test_reader_receives_events_after_its_listening_connection_was_terminated(
    writing: Writing, engine: AsyncEngine, database_url: str
) -> None:
    async with asyncio.timeout(60), open_broadcast(database_url) as elsewhere:
        stream = RunReader(engine, elsewhere, poll_seconds=600).follow(writing.key)  # too long for polling to help
        await anext(stream)
        first = await _listening(database_url, other_than=0)
        async with await AsyncConnection.connect(database_url, autocommit=True) as connection:
            await connection.execute(b"SELECT pg_terminate_backend(%s)", (first,))
        await writing.say("while nobody listened")

        event = await anext(stream)
        await _listening(database_url, other_than=first)
        await writing.say("while somebody listens again")

        assert event.data["content"] == "while nobody listened"
        assert (await anext(stream)).data["content"] == "while somebody listens again"


async def test_reader_without_notifications_polls(writing: Writing, engine: AsyncEngine) -> None:
    stream = RunReader(engine, Broadcast(), poll_seconds=POLL_SECONDS).follow(writing.key)
    await anext(stream)
    await writing.say("a")

    assert (await anext(stream)).data["content"] == "a"


async def test_many_readers_share_one_polling_query(
    writing: Writing, engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []

    async def counted(pool: AsyncEngine, statement: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        looks.extend(["look"] if "unnest" in statement else [])
        return await fetch_autocommit(pool, statement, values)

    monkeypatch.setattr(reader_module, "fetch_autocommit", counted)
    begun = monotonic()
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        reader = RunReader(engine, Broadcast(), poll_seconds=POLL_SECONDS)
        reading = [group.create_task(_piece(reader, writing.key, 0, 2)) for _ in range(50)]
        await writing.say("a")

    assert [numbers_and_types(task.result()) for task in reading] == [[(1, "run_started"), (2, "thinking")]] * 50
    assert len(looks) <= (monotonic() - begun) / (POLL_SECONDS / 2) + 1


async def test_page_ends_with_the_event_that_fills_it_and_the_next_follows(
    writing: Writing, engine: AsyncEngine
) -> None:
    await writing.say("1", "2", *("x" * 40_000 for _ in range(3)), "6")
    reader = RunReader(engine, Broadcast())

    first = await reader.page(writing.key, after=1)
    second = await reader.page(writing.key, after=first.events[-1].seq)

    assert [([event.seq for event in page.events], page.last) for page in (first, second)] == [
        ([2, 3, 4, 5], False),
        ([6, 7], True),
    ]
    await writing.end()
    assert [event.seq for event in await read(reader, writing.key, 1)] == [2, 3, 4, 5, 6, 7, 8]


async def test_reader_that_takes_nothing_buffers_a_bounded_number_of_bytes() -> None:
    listener = Broadcast().listener(RunKey("default", new_run().key.id), 0, behind=False)
    listener.add(EventRow(seq, "thinking", {}, b"x" * 2**16) for seq in range(1, 100))

    assert (len(listener.pop_all()), listener.last, listener.behind) == (4, 4, True)


async def test_unreferenced_listener_is_removed() -> None:
    broadcast = Broadcast()
    kept = broadcast.listener(RunKey("default", "kept"), 0)
    broadcast.listener(RunKey("default", "refused"), 0)  # its run is never created, so no notification follows

    assert list(broadcast._listeners) == ["kept"]  # pyright: ignore[reportPrivateUsage]
    assert list(broadcast.listeners()) == [kept]


async def test_reader_waits_for_an_unavailable_postgres(writing: Writing, database_url: str) -> None:
    async with asyncio.timeout(60), proxied(database_url) as database:
        far = open_engine(database.url)
        stream = RunReader(far, Broadcast(), poll_seconds=POLL_SECONDS).follow(writing.key)
        await anext(stream)
        port = database.proxy.port
        await database.proxy.stop()
        reading = asyncio.ensure_future(anext(stream))
        await writing.say("a")
        await asyncio.sleep(3 * POLL_SECONDS)  # the reader retries meanwhile; the number of attempts does not matter

        await database.proxy.start(port)

        assert (await reading).data["content"] == "a"
        await stream.aclose()
        await far.dispose()


async def _listening(url: str, *, other_than: int) -> int:
    """Wait for a listening connection and return its process id."""
    async with await AsyncConnection.connect(url, autocommit=True) as connection:
        while True:
            rows = await (await connection.execute(_LISTENING.encode())).fetchall()
            if found := [pid for (pid,) in rows if pid != other_than]:
                return found[0]


async def test_query_that_fails_after_its_reader_has_gone_is_no_lost_exception(
    writing: Writing, engine: AsyncEngine, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        await AsyncConnection.connect(database_url) as locked,
        await AsyncConnection.connect(database_url, autocommit=True) as other,
    ):
        await locked.execute(b"LOCK TABLE events IN ACCESS EXCLUSIVE MODE")
        reader = RunReader(engine, Broadcast())
        reading = asyncio.get_running_loop().create_task(read(reader, writing.key))
        while not await (await other.execute(_BLOCKED)).fetchone():  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.01)
        reading.cancel()
        await asyncio.wait({reading})
        await other.execute(_END_BLOCKED)
        await reader.close()
    del reading  # it refers to the query
    gc.collect()

    assert [record.message for record in caplog.records if record.name == "asyncio"] == []
