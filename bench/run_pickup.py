"""How long a run waits until another process picks it up."""

from statistics import median
from time import perf_counter

import psycopg
from psycopg import AsyncConnection

from bench.figures import Figure
from bench.fleet import open_fleet
from bench.harness import BenchSetup

NAMES = ("runs.pickup_ms",)
PICKUPS = 60
_PICKED_UP = (
    "SELECT (extract(epoch FROM started_at - created_at) * 1000)::float8 FROM runs WHERE thread_id LIKE 'pickup-%'"
)


async def measure(setup: BenchSetup) -> list[Figure]:
    """Measure from a run's acceptance to its claim by another process, next to a NOTIFY between two connections."""
    setup.say("Runs that another process picks up")
    async with open_fleet(setup, "pickup") as fleet:
        await fleet.grow(1)
        for _ in range(PICKUPS // 4):
            await fleet.run("warm-up")
        for _ in range(PICKUPS):
            await fleet.run("pickup")
        with psycopg.connect(fleet.database) as connection:
            waits = [float(row[0]) for row in connection.execute(_PICKED_UP).fetchall()]
        notified = await _notify_times(fleet.database)
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
