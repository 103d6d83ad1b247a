"""A tenant's run behind many runs of another tenant, next to the same run alone."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import count
from statistics import median
from time import perf_counter

import aiohttp

from bench.figures import Figure
from bench.harness import BenchSetup
from bench.platform_process import REQUEST, up
from starling.app.access.keys import KeyService, KeySpec
from starling.core.clock import SystemClock
from starling.core.principal import HOST_ADMIN, Scope
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.engine import open_engine
from starling.infra.postgres.keys import KeyRepository

NAMES = ("runs.fairness_ratio",)
OTHERS = 64  # runs of the other tenant, sent at once
ROUNDS = 5
DELAY_MS = 200
_THREADS = count(1)


async def measure(setup: BenchSetup) -> list[Figure]:
    """Measure from a run's request to its end, alone and sent after 64 requests of another tenant."""
    setup.say(f"A run behind {OTHERS} runs of another tenant, {DELAY_MS} ms for each model call")
    async with up(setup.place("tenants", STARLING_RATE_PER_MINUTE="1000000")) as (platform, _):
        one, other = [await _key(platform.database, tenant) for tenant in ("one", "other")]
        async with _client(platform.url, one) as busy, _client(platform.url, other) as waiting:
            await asyncio.gather(*(_run(client) for client in (busy, waiting)))
            await setup.model.delay(DELAY_MS)
            alone = median([await _run(waiting) for _ in range(ROUNDS)])
            behind = [await _run_behind(busy, waiting) for _ in range(ROUNDS)]
        await setup.model.delay(0)
    against = f"{alone:.0f} ms alone; behind {OTHERS} median {median(behind):.0f} ms, longest {max(behind):.0f} ms"
    return [Figure("runs.fairness_ratio", median(behind) / alone, "", 1.0, against)]


async def _key(database: str, tenant: str) -> str:
    engine = open_engine(database)
    spec = KeySpec("bench", tenant, frozenset({Scope.RUN}))
    _, key = await KeyService(KeyRepository(engine), SystemClock()).create(HOST_ADMIN, spec, Actor.local("bench"))
    await engine.dispose()
    return key


@asynccontextmanager
async def _client(url: str, key: str) -> AsyncGenerator[aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(limit=0, force_close=True)  # an idle connection would be closed between rounds
    async with aiohttp.ClientSession(url, headers={"Authorization": f"Bearer {key}"}, connector=connector) as client:
        yield client


async def _run_behind(busy: aiohttp.ClientSession, waiting: aiohttp.ClientSession) -> float:
    """Return the milliseconds of a run that is sent once the runs of the other tenant are accepted."""
    accepted = asyncio.Semaphore(0)
    others = [asyncio.get_running_loop().create_task(_run(busy, accepted)) for _ in range(OTHERS)]
    for _ in range(OTHERS):
        await accepted.acquire()
    milliseconds = await _run(waiting)
    await asyncio.gather(*others)
    return milliseconds


async def _run(client: aiohttp.ClientSession, accepted: asyncio.Semaphore | None = None) -> float:
    """Send the request on a new thread; return the milliseconds until its end. Raises RuntimeError where it fails."""
    begun = perf_counter()
    asked = {"input": REQUEST, "thread_id": f"fair-{next(_THREADS)}"}
    async with client.post("/v1/agent/run", json=asked) as response:
        if accepted is not None:
            accepted.release()
        stream = await response.read()
    if b'"status":"succeeded"' not in stream.replace(b" ", b""):
        raise RuntimeError(f"the run didn't come to its answer: {stream[-500:].decode()}")
    return (perf_counter() - begun) * 1000
