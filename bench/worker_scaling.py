"""An API and workers as separate processes over one Postgres: pick-up time, and the gain of a second worker."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import count
from statistics import median
from time import perf_counter

import aiohttp
import orjson
import psycopg
from psycopg import AsyncConnection

from bench.figures import Figure
from bench.harness import BenchSetup
from bench.line_process import python, running
from bench.platform_process import REQUEST, STARLING, Place, answered, free_port
from starling.infra.postgres.embedded.server import EmbeddedPostgres
from starling.infra.postgres.schema import upgrade

PICKUP_NAMES = ("runs.pickup_ms",)
SPEEDUP_NAMES = ("runs.two_worker_speedup",)
PICKUPS = 60
SLOTS = 4  # of a worker: few enough that nothing else is short
DELAY_MS = 200
CALLERS = 6 * SLOTS
RUNS_EACH = 2
_THREADS = count(1)
_PICKED_UP = (
    "SELECT (extract(epoch FROM started_at - created_at) * 1000)::float8 FROM runs WHERE thread_id LIKE 'pickup-%'"
)


@dataclass(frozen=True, slots=True)
class Fleet:
    """An API without a worker, and what more workers need."""

    url: str
    place: Place
    session: aiohttp.ClientSession

    async def run(self, prefix: str) -> None:
        """Send the request on a new thread and wait for its end. Raises RuntimeError unless it succeeds."""
        asked = {"input": REQUEST, "thread_id": f"{prefix}-{next(_THREADS)}"}
        async with self.session.post(f"{self.url}/v1/agent/run", json=asked) as response:
            stream = await response.read()
        if b'"status":"succeeded"' not in stream.replace(b" ", b""):
            raise RuntimeError(f"the run didn't come to its answer: {stream[-500:].decode()}")

    @asynccontextmanager
    async def worker(self) -> AsyncGenerator[None]:
        """Run one more worker, from the moment when it is ready."""
        port = free_port()
        environment = self.place.environment(0) | {"STARLING_WORKER_PORT": str(port)}
        async with running(python("-c", STARLING, "worker"), environment) as process:
            await answered(self.session, f"http://127.0.0.1:{port}/ready", process)
            yield


@asynccontextmanager
async def _fleet(setup: BenchSetup, name: str, **extra: str) -> AsyncGenerator[tuple[Fleet, str]]:
    """Start Postgres and an API; gives the database's address too."""
    place = setup.place(name, **extra)
    with EmbeddedPostgres(place.data, explicit=True) as postgres:
        await upgrade(postgres.url)
        place = Place(place.folder, place.model_url, {**place.extra, "DATABASE_URL": postgres.url})
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
            running(python("-c", STARLING, "serve"), place.environment(port)) as process,
        ):
            await answered(session, f"{url}/ready", process)
            yield Fleet(url, place, session), postgres.url


async def measure_pickup(setup: BenchSetup) -> list[Figure]:
    """Measure from a run's acceptance to its claim by another process, next to a NOTIFY between two connections."""
    setup.say("Runs that another process picks up")
    async with _fleet(setup, "pickup") as (fleet, url), fleet.worker():
        for _ in range(PICKUPS // 4):
            await fleet.run("warm-up")
        for _ in range(PICKUPS):
            await fleet.run("pickup")
        with psycopg.connect(url) as connection:
            waits = [float(row[0]) for row in connection.execute(_PICKED_UP).fetchall()]
        notified = await _notify_times(url)
    return [Figure("runs.pickup_ms", median(waits), "ms", median(notified), "a NOTIFY from one connection to another")]


async def _notify_times(url: str) -> list[float]:
    async with (
        await AsyncConnection.connect(url, autocommit=True) as speaker,
        await AsyncConnection.connect(url, autocommit=True) as listener,
    ):
        await listener.execute("LISTEN bench")
        times: list[float] = []
        for _ in range(PICKUPS):
            begun = perf_counter()
            await speaker.execute("NOTIFY bench")
            await anext(listener.notifies(stop_after=1))
            times.append((perf_counter() - begun) * 1000)
    return times


async def measure_speedup(setup: BenchSetup) -> list[Figure]:
    """Measure how many runs two workers do in the time in which one does one, where models are what takes time."""
    setup.say(f"One worker and two, {SLOTS} runs at once each, {DELAY_MS} ms for each model call")
    limits = orjson.dumps({"runs_per_worker": SLOTS, "tenant_share": 1}).decode()
    async with _fleet(setup, "workers", STARLING_LIMITS=limits) as (fleet, _), AsyncExitStack() as workers:
        await workers.enter_async_context(fleet.worker())
        await fleet.run("warm-up")
        await setup.model.delay(DELAY_MS)
        one = await _runs_a_second(fleet)
        await workers.enter_async_context(fleet.worker())
        await asyncio.gather(*(fleet.run("warm-up") for _ in range(2 * SLOTS)))
        two = await _runs_a_second(fleet)
    await setup.model.delay(0)
    against = f"one worker, {one:.1f} runs a second"
    return [Figure("runs.two_worker_speedup", two / one, "", 1.0, against)]


async def _runs_a_second(fleet: Fleet) -> float:
    begun = perf_counter()
    async with asyncio.TaskGroup() as lanes:
        for _ in range(CALLERS):
            lanes.create_task(_lane(fleet))
    return CALLERS * RUNS_EACH / (perf_counter() - begun)


async def _lane(fleet: Fleet) -> None:
    for _ in range(RUNS_EACH):
        await fleet.run("lane")
