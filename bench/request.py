"""One request through the whole platform, next to a bare loop, measured in the same minutes.

The machine's noise hits both sides alike, for they take turns. Processor time is the platform's and its Postgres';
the tools' and the model's don't count.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import aiohttp
import orjson
import psutil

from bench import figures
from bench.figures import Figure
from bench.harness import BenchSetup, ModelControl
from bench.line_process import ask, line_of, python, running
from bench.platform_process import Cpu, Place, Platform, Timing, up

NAMES = (
    *("run.cpu_ms", "run.cpu_ms_loop", "run.done_ms", "run.first_event_ms", "run.plan_event_ms"),
    *("run.write_transactions", "run.throughput_share", "run.model_calls", "run.model_depth"),
    *("run.model_calls_risky", "run.model_depth_risky"),
    "up.idle_ms_per_s",
)
ROUNDS = 11
RUNS = 30  # a round
BARE_RUNS = 60
TOGETHER = 32
RUNS_EACH = 3  # of those together
DELAY_MS = 200

_CALLS, _DEPTH = 6, 4  # the bare loop's: plan, two tasks, two reviews, answer
_TRANSACTIONS = 7
_IDLE_SECONDS = 30

type Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Bench:
    """The processes that take part."""

    platform: Platform
    bare: asyncio.subprocess.Process
    served: "Served"

    async def loops(self, requests: int, at_once: int = 1) -> dict[str, Any]:
        return orjson.loads(await ask(self.bare, f"{requests} {at_once}"))


@dataclass(frozen=True, slots=True)
class Served:
    """The bare loop as a service, on the platform's Postgres."""

    url: str
    process: psutil.Process
    session: aiohttp.ClientSession

    async def run(self) -> None:
        async with self.session.post(self.url, json={}) as response:
            if b"event: done" not in await response.read():
                raise RuntimeError("the bare service didn't come to its answer")

    def cpu(self) -> float:
        times = self.process.cpu_times()
        return (times.user + times.system) * 1000


@dataclass(frozen=True, slots=True)
class Round:
    """One turn of each: the platform's runs, then the bare loop's, while the platform had nothing to do."""

    timings: Sequence[Timing]
    health: Sequence[float]
    cpu: Cpu  # of all its runs
    transactions: float  # a run
    bare: Mapping[str, Any]
    bare_cpu: float  # a request
    served_cpu: float  # a request, Postgres included


async def _round(bench: Bench) -> Round:
    platform = bench.platform
    cpu, written = platform.cpu(), platform.write_transactions()
    timings = [await platform.run() for _ in range(RUNS)]
    cpu, written = platform.cpu() - cpu, platform.write_transactions() - written
    health = [await platform.health() for _ in range(RUNS)]
    bare = await bench.loops(BARE_RUNS)
    served = await _served_cpu(bench)
    return Round(timings, health, cpu, written / RUNS, bare, bare["cpu"] / BARE_RUNS, served)


async def _served_cpu(bench: Bench) -> float:
    """Return the milliseconds of processor time that the bare service and Postgres take for a request."""
    own, postgres = bench.served.cpu(), bench.platform.cpu().postgres
    for _ in range(BARE_RUNS):
        await bench.served.run()
    return (bench.served.cpu() - own + bench.platform.cpu().postgres - postgres) / BARE_RUNS


async def _one_request(bench: Bench) -> list[Figure]:
    rounds = [await _round(bench) for _ in range(ROUNDS)]
    background = await _transactions_at_rest(bench.platform, sum(run.done for turn in rounds for run in turn.timings))
    written = median(turn.transactions for turn in rounds) - background / (ROUNDS * RUNS)
    runs = [run for turn in rounds for run in turn.timings]
    cpu = median((turn.cpu.server + turn.cpu.postgres) / RUNS for turn in rounds)
    postgres = sum(turn.cpu.postgres for turn in rounds) / (ROUNDS * RUNS)
    bare_plan = median(time for turn in rounds for time in turn.bare["plan"])
    bare_done = median(time for turn in rounds for time in turn.bare["done"])
    bare_cpu = median(turn.bare_cpu for turn in rounds)
    served_cpu = median(turn.served_cpu for turn in rounds)
    health = median(time for turn in rounds for time in turn.health)
    return [
        Figure("run.cpu_ms", cpu, "ms", served_cpu, f"the bare loop's, served; Postgres' part is {postgres:.1f} ms"),
        Figure("run.cpu_ms_loop", cpu, "ms", bare_cpu, "the bare loop's, neither served nor kept"),
        Figure("run.done_ms", median(run.done for run in runs), "ms", bare_done, "the bare loop's"),
        Figure("run.first_event_ms", median(run.first_event for run in runs), "ms", health, "GET /health"),
        Figure("run.plan_event_ms", median(run.plan for run in runs), "ms", bare_plan, "the bare loop's plan"),
        Figure("run.write_transactions", written, "", _TRANSACTIONS, "the mark; background subtracted"),
    ]


async def _idle(bench: Bench) -> Figure:
    """Return the processor time that server and Postgres take while there is nothing to do.

    The bare loop, served, has nothing to do in the same seconds: its server wakes up ten times in each.
    """
    await asyncio.sleep(3)  # for what follows the last run
    used, bare = bench.platform.cpu(), bench.served.cpu()
    await asyncio.sleep(_IDLE_SECONDS)
    used, bare = bench.platform.cpu() - used, bench.served.cpu() - bare
    milliseconds = (used.server + used.postgres) / _IDLE_SECONDS
    against = f"the bare loop's, served; Postgres' part is {used.postgres / _IDLE_SECONDS:.1f} ms"
    return Figure("up.idle_ms_per_s", milliseconds, "ms", bare / _IDLE_SECONDS, against)


async def _transactions_at_rest(platform: Platform, milliseconds: float) -> int:
    """Return how many write transactions the platform makes in this time with nothing to do: sweeps, heartbeats."""
    written = platform.write_transactions()
    await asyncio.sleep(milliseconds / 1000)
    return platform.write_transactions() - written


def _asked(calls: Sequence[Body], end: str = "") -> list[Figure]:
    """The figures that one run's model calls give; calls side by side overlap, for each takes its time."""
    depth = figures.depth((call["begun"], call["ended"]) for call in calls)
    return [
        Figure(f"run.model_calls{end}", len(calls), "", _CALLS, "the bare loop's"),
        Figure(f"run.model_depth{end}", depth, "", _DEPTH, "the bare loop's"),
    ]


async def _throughput(bench: Bench, depth: int) -> Figure:
    """The share of what could be done if nothing but the model took time."""
    ideal = TOGETHER / (depth * DELAY_MS / 1000)
    shares: list[float] = []
    bare_shares: list[float] = []
    for _ in range(3):
        shares.append(await _runs_a_second(bench.platform) / ideal)
        requests = TOGETHER * RUNS_EACH
        bare_shares.append(requests / (await bench.loops(requests, TOGETHER))["elapsed"] * 1000 / ideal)
    against = f"the bare loop's; ideal is {ideal:g} a second"
    return Figure("run.throughput_share", median(shares), "", median(bare_shares), against)


async def _runs_a_second(platform: Platform) -> float:
    loop = asyncio.get_running_loop()
    begun = loop.time()
    async with asyncio.TaskGroup() as lanes:
        for _ in range(TOGETHER):
            lanes.create_task(_lane(platform))
    return TOGETHER * RUNS_EACH / (loop.time() - begun)


async def _lane(platform: Platform) -> None:
    for _ in range(RUNS_EACH):
        await platform.run()


async def measure(setup: BenchSetup) -> list[Figure]:
    """Measure one request after another, then many at once, next to the bare loop."""
    place, model = setup.place("request"), setup.model
    async with up(place) as (platform, _):
        setup.say("One run, to see what it asks the model")
        recorded = await _recorded(platform, model)
        risky = await _recorded(platform, model, reflect="risky")
        (place.folder / "requests.json").write_bytes(orjson.dumps([call["body"] for call in recorded]))
        async with (
            running(python("-m", "bench.bare_loop", str(place.folder)), place.environment(0)) as bare,
            _served(place, platform) as served,
        ):
            bench = Bench(platform, bare, served)
            await model.delay(0)
            await _warm_up(bench)
            setup.say(f"{ROUNDS} rounds of {RUNS} runs, one after another")
            one = await _one_request(bench)
            setup.say(f"{_IDLE_SECONDS} seconds with nothing to do")
            one.append(await _idle(bench))
            setup.say(f"{TOGETHER} runs at once, {DELAY_MS} ms for each model call")
            await model.delay(DELAY_MS)
            share = await _throughput(bench, figures.depth((call["begun"], call["ended"]) for call in recorded))
    await model.delay(0)
    return [*one, share, *_asked(recorded), *_asked(risky, "_risky")]


async def _recorded(platform: Platform, model: ModelControl, **config: str) -> list[dict[str, Any]]:
    """Return what the model is asked for one run; each call takes its time, so that those side by side overlap."""
    await platform.run(**config)
    await model.delay(DELAY_MS)
    await model.calls()
    await platform.run(**config)
    return await model.calls()


async def _warm_up(bench: Bench) -> None:
    for _ in range(RUNS):
        await bench.platform.run()
        await bench.served.run()
    await bench.loops(RUNS)


@asynccontextmanager
async def _served(place: Place, platform: Platform) -> AsyncGenerator[Served]:
    command = python("-m", "bench.served_loop", str(place.folder), platform.database)
    async with running(command, place.environment(0)) as process, aiohttp.ClientSession() as session:
        yield Served(await line_of(process), psutil.Process(process.pid), session)
