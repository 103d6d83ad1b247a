"""Streams: how many events a process writes and delivers, and what many idle readers cost others."""

import asyncio
import resource
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter

import aiohttp
import orjson
from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from bench.figures import Figure
from bench.harness import BenchSetup
from bench.platform_process import Platform, up
from starling.core.events.run_events import Done, Thinking, Usage
from starling.core.runs import RunResult
from starling.infra.postgres.embedded.server import EmbeddedPostgres
from starling.infra.postgres.engine import open_engine
from starling.infra.postgres.runs.acceptance import RunKey, RunRepository
from starling.infra.postgres.runs.broadcast import Broadcast, NoticeSender
from starling.infra.postgres.runs.leases import Leases
from starling.infra.postgres.runs.reader import RunReader
from starling.infra.postgres.runs.writer import RunWriter
from starling.infra.postgres.schema import upgrade
from tests.support.run_factories import claimed, defer_nothing, new_run

EVENT_NAMES = ("events.per_second",)
READER_NAMES = ("api.p95_ms_1000_streams",)
WRITERS, FLUSHES, EVENTS_EACH = 8, 200, 10
READERS, HELD, GOING_ON = 1_000, 10, 20
ASKED = 200  # times each route
DELAY_MS = 200
_FILES = 2 * READERS + 500
_TEXT = "A sentence about the tide in Callao, as a model writes it, word for word. "
_INSERT = """
INSERT INTO events (tenant, run_id, seq, type, data)
SELECT 'bare', %s, item.seq, item.type, item.data
FROM jsonb_to_recordset(%s) AS item (seq bigint, type text, data jsonb)"""
_threads = count(1)


async def measure_events(setup: BenchSetup) -> list[Figure]:
    """Measure events from a run's writer over Postgres to a reader of the same process, next to bare INSERTs."""
    setup.say(f"{WRITERS} runs that write {FLUSHES * EVENTS_EACH:,} events each")
    with tempfile.TemporaryDirectory(prefix="starling-bench-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        with EmbeddedPostgres(folder / "data") as postgres:
            await upgrade(postgres.url)
            ours, bare = list[float](), list[float]()
            for _ in range(3):
                ours.append(await _events_a_second(postgres.url))
                bare.append(await _inserts_a_second(postgres.url))
    against = f"INSERTs of the same rows, {EVENTS_EACH} at once, on {WRITERS} connections"
    return [Figure("events.per_second", median(ours), "", median(bare), against)]


async def _events_a_second(url: str) -> float:
    engine = open_engine(url)
    notices = NoticeSender(engine)
    broadcast = Broadcast(notices=notices)
    repository = RunRepository(engine, defer_nothing, cap=10_000)
    leases, reader = Leases(engine, defer_nothing, repository.admit, graph_version=1), RunReader(engine, broadcast)

    async def write(writer: RunWriter) -> None:
        for number in range(FLUSHES):
            for _ in range(EVENTS_EACH):
                writer.emit(Thinking(content=_TEXT, message_id=str(number)))
            await writer.flush()
        result, last = RunResult(status="succeeded", reply=""), Done(usage=Usage(), status="succeeded", reply="")
        await writer.end(result, last, repository)
        await writer.close()

    async def read(key: RunKey) -> int:
        return len([event async for event in reader.follow(key)])

    runs = [new_run(thread=f"events-{next(_threads)}") for _ in range(WRITERS)]
    for run in runs:
        await repository.accept(run)
    writers = [RunWriter(engine, await claimed(leases, run.key), broadcast) for run in runs]
    begun = perf_counter()
    async with asyncio.TaskGroup() as tasks:
        readers = [tasks.create_task(read(run.key)) for run in runs]
        for writer in writers:
            tasks.create_task(write(writer))
    seconds = perf_counter() - begun
    await notices.close()
    await engine.dispose()
    assert {task.result() for task in readers} == {FLUSHES * EVENTS_EACH + 2}
    return WRITERS * FLUSHES * EVENTS_EACH / seconds


async def _inserts_a_second(url: str) -> float:
    begun = perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(WRITERS):
            tasks.create_task(_insert(url))
    return WRITERS * FLUSHES * EVENTS_EACH / (perf_counter() - begun)


async def _insert(url: str) -> None:
    run_id = new_run().key.id
    async with await AsyncConnection.connect(url, autocommit=True) as connection:
        for number in range(FLUSHES):
            data = Thinking(content=_TEXT, message_id=str(number)).model_dump(mode="json")
            first = number * EVENTS_EACH
            rows = [{"seq": first + each, "type": "thinking", "data": data} for each in range(EVENTS_EACH)]
            await connection.execute(_INSERT, (run_id, Jsonb(rows)))


async def measure_readers(setup: BenchSetup) -> list[Figure]:
    """Measure other routes while 1,000 readers wait for news and 20 runs go on, next to the same with nobody there."""
    setup.say(f"{READERS:,} idle readers and {GOING_ON} runs")
    _allow_files()
    limits = orjson.dumps({"run_seconds": 3_600, "model_call_seconds": 3_600}).decode()
    place = setup.place("readers", STARLING_LIMITS=limits, STARLING_RATE_PER_MINUTE="1000000")
    async with up(place) as (platform, _), aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await platform.run("seen")
        await setup.model.delay(3_600_000)
        held = [await _accepted(session, platform.url) for _ in range(HELD)]
        await setup.model.waiting(HELD)
        await setup.model.delay(DELAY_MS)
        alone = await _times(session, platform.url, held)
        async with _reading(session, platform.url, held), _going_on(platform):
            crowded = await _times(session, platform.url, held)
        await setup.model.delay(0)
    against = f"with nobody else; median {median(crowded):.1f} ms"
    return [Figure("api.p95_ms_1000_streams", _p95(crowded), "ms", _p95(alone), against)]


def _allow_files() -> None:
    """Let this process and those it starts open enough files. Raises RuntimeError where they may not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < _FILES:
        raise RuntimeError(f"{READERS} readers need {_FILES} open files; {hard} are allowed (ulimit -Hn).")
    if soft != resource.RLIM_INFINITY and soft < _FILES:
        resource.setrlimit(resource.RLIMIT_NOFILE, (_FILES, hard))


async def _accepted(session: aiohttp.ClientSession, url: str) -> str:
    """Have a run accepted and return its id."""
    asked = {"input": "Which tide?", "thread_id": f"held-{next(_threads)}"}
    async with session.post(f"{url}/v1/runs", json=asked) as response:
        if response.status != 202:
            raise RuntimeError(f"the run wasn't accepted: {await response.text()}")
        return (await response.json())["run_id"]


@asynccontextmanager
async def _reading(session: aiohttp.ClientSession, url: str, runs: Sequence[str]) -> AsyncGenerator[None]:
    """Read the streams of runs that tell nothing new; each has told its beginning before the block starts."""
    opened = [await _opened(session, f"{url}/v1/runs/{runs[number % len(runs)]}/events") for number in range(READERS)]
    try:
        yield
    finally:
        for response in opened:
            response.close()


async def _opened(session: aiohttp.ClientSession, url: str) -> aiohttp.ClientResponse:
    response = await session.get(url, timeout=aiohttp.ClientTimeout(total=None))
    if response.status != 200:
        raise RuntimeError(f"the stream wasn't opened: {await response.text()}")
    await response.content.readuntil(b"\n\n")
    return response


@asynccontextmanager
async def _going_on(platform: Platform) -> AsyncGenerator[None]:
    """Keep runs going on, each followed by the next."""

    async def lane() -> None:
        while True:
            await platform.run()

    lanes = [asyncio.get_running_loop().create_task(lane()) for _ in range(GOING_ON)]
    try:
        yield
    finally:
        for task in lanes:
            task.cancel()
        ended = await asyncio.gather(*lanes, return_exceptions=True)
    if broken := [end for end in ended if isinstance(end, Exception)]:
        raise broken[0]


async def _times(session: aiohttp.ClientSession, url: str, runs: Sequence[str]) -> list[float]:
    """Return the milliseconds of requests for the health and for a run, in turns."""
    times: list[float] = []
    for number in range(ASKED):
        for route in ("/health", f"/v1/runs/{runs[number % len(runs)]}"):
            begun = perf_counter()
            async with session.get(f"{url}{route}") as response:
                await response.read()
                response.raise_for_status()
            times.append((perf_counter() - begun) * 1000)
    return times


def _p95(times: Sequence[float]) -> float:
    return quantiles(times, n=20)[-1]
