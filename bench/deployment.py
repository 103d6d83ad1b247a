"""Several workers over one Postgres: runs a second of 1, 2 and 4, and what a run, an idle process and a listener cost.

Costs are processor time and counts, which mean the same on a busy machine. Runs a second do not.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from psycopg import AsyncConnection

from bench.figures import Figure
from bench.harness import BenchSetup
from bench.load import LoadReport, Target, measure_load, own_platform
from bench.resource_use import DatabaseSample, DatabaseUse

WORKERS = (1, 2, 4)
SLOTS = 4  # of a worker: few enough that nothing but slots is short, also for four of them
CALLERS = 24  # more than all slots: there is always a run that waits
FULL_SLOTS, FULL_CALLERS = 48, 60  # the default of limits.runs_per_worker
DELAY_MS = 200
DEPTH = 4  # model calls of a run, one after another
WARM_UP, SECONDS = 4.0, 15.0
SETTLE = 12.0  # seconds after a load: connections report up to 10 s late what they did
LISTENERS, NOTIFICATIONS = 50, 1_000

NAMES = (
    *("deploy.runs_per_second_1_worker", "deploy.runs_per_second_2_workers", "deploy.runs_per_second_4_workers"),
    *("runs.two_worker_speedup", "deploy.runs_per_second_full_worker"),
    *("deploy.runs_per_second_2_full_workers", "deploy.runs_per_second_4_full_workers"),
    *("deploy.worker_cpu_ms_per_run", "deploy.api_cpu_ms_per_run", "deploy.postgres_cpu_ms_per_run"),
    *("deploy.wal_kb_per_run", "deploy.stored_kb_per_run", "deploy.write_transactions_per_run"),
    *("deploy.transactions_per_run", "deploy.notifications_per_run"),
    *("deploy.connections_per_worker", "deploy.worker_memory_mb"),
    *("deploy.idle_transactions_per_s", "deploy.idle_postgres_ms_per_s", "deploy.notify_us_per_listener"),
)


@dataclass(frozen=True, slots=True)
class Measured:
    """The load by workers, with few slots and with all that a worker has by default, and what costs without any run."""

    by_workers: Mapping[int, LoadReport]
    full: Mapping[int, LoadReport]
    idle: DatabaseUse  # per second and process
    notify_us: float


async def measure(setup: BenchSetup) -> list[Figure]:
    """Measure 1, 2 and 4 workers with few slots, then with as many as they have by default."""
    by_workers: dict[int, LoadReport] = {}
    full: dict[int, LoadReport] = {}
    async with own_platform(setup, "deploy", CALLERS, SLOTS) as (fleet, target):
        await setup.model.delay(DELAY_MS)
        for workers in WORKERS:
            await fleet.grow(workers)
            by_workers[workers] = await _loaded(setup, target, workers, CALLERS)
        idle = await _idle(setup, target)
        notify_us = await _notify_cost(target)
    async with own_platform(setup, "full", FULL_CALLERS, FULL_SLOTS) as (fleet, target):
        for workers in WORKERS:
            await fleet.grow(workers)
            full[workers] = await _loaded(setup, target, workers, FULL_CALLERS)
    await setup.model.delay(0)
    measured = Measured(by_workers, full, idle, notify_us)
    return [*_throughput(measured), *_costs(measured), *_standing_costs(measured)]


async def _loaded(setup: BenchSetup, target: Target, workers: int, callers: int) -> LoadReport:
    setup.say(f"{callers} callers and {workers} worker(s), {DELAY_MS} ms for each model call")
    report = await measure_load(target, callers, warm_up=WARM_UP, seconds=SECONDS)
    if report.errors or not report.runs:
        raise RuntimeError(f"runs of the load test failed: {dict(report.errors) or 'none ended'}")
    return report


async def _idle(setup: BenchSetup, target: Target) -> DatabaseUse:
    """Return what Postgres does in a second for each process that has nothing to do."""
    setup.say(f"{SECONDS:g} seconds with nothing to do")
    await asyncio.sleep(SETTLE)
    before = await _database(target)
    await asyncio.sleep(SECONDS)
    return DatabaseUse.of(before, await _database(target), round(SECONDS * (1 + max(WORKERS))))


async def _notify_cost(target: Target) -> float:
    """Return the microseconds of Postgres' processor time that a notification costs for each connection that listens.

    Notifications are sent to as few as there are, then to 50 more.
    """
    assert target.fleet is not None
    async with AsyncExitStack() as stack:
        speaker = await stack.enter_async_context(await AsyncConnection.connect(target.fleet.database, autocommit=True))
        few = await _notified(target, speaker)
        for _ in range(LISTENERS):
            listening = await AsyncConnection.connect(target.fleet.database, autocommit=True)
            await (await stack.enter_async_context(listening)).execute("LISTEN bench")
        many = await _notified(target, speaker)
    return (many - few) * 1000 / (LISTENERS * NOTIFICATIONS)


async def _notified(target: Target, speaker: AsyncConnection) -> float:
    """Return the milliseconds of Postgres' processor time for all notifications."""
    before = await _database(target)
    for _ in range(NOTIFICATIONS):
        await speaker.execute("NOTIFY bench")
    await asyncio.sleep(0.5)
    used = DatabaseUse.of(before, await _database(target), 1).cpu_ms
    assert used is not None
    return used


async def _database(target: Target) -> DatabaseSample:
    assert target.database is not None
    return await target.database.sample()


def _throughput(measured: Measured) -> Sequence[Figure]:
    one, two, four = (measured.by_workers[workers].runs_per_second for workers in WORKERS)
    against = f"one worker; each has {SLOTS} slots, {DELAY_MS} ms for each model call"
    model_alone = {slots: slots / (DEPTH * DELAY_MS / 1000) for slots in (SLOTS, FULL_SLOTS)}
    return [
        Figure("deploy.runs_per_second_1_worker", one, "/s", model_alone[SLOTS], "if only models took time"),
        Figure("deploy.runs_per_second_2_workers", two, "/s", one, against),
        Figure("deploy.runs_per_second_4_workers", four, "/s", one, against),
        Figure("runs.two_worker_speedup", two / one, "", 1.0, against),
        Figure(
            "deploy.runs_per_second_full_worker",
            measured.full[1].runs_per_second,
            "/s",
            model_alone[FULL_SLOTS],
            f"if only models took time, with {FULL_SLOTS} slots",
        ),
        *(
            Figure(
                f"deploy.runs_per_second_{workers}_full_workers",
                measured.full[workers].runs_per_second,
                "/s",
                measured.full[1].runs_per_second,
                f"one worker; each has {FULL_SLOTS} slots, and all share the cores of this machine",
            )
            for workers in WORKERS[1:]
        ),
    ]


def _costs(measured: Measured) -> Sequence[Figure]:
    """The costs of a run, with four workers next to one."""
    one, four, full = measured.by_workers[1], measured.by_workers[max(WORKERS)], measured.full[1]
    with_one, with_four = _per_run(one), _per_run(four)

    def figure(name: str, value: float, unit: str, reference: float) -> Figure:
        return Figure(f"deploy.{name}", value, unit, reference, "with one worker instead of four")

    assert with_one.cpu_ms is not None
    assert with_four.cpu_ms is not None
    return [
        figure("worker_cpu_ms_per_run", four.cpu_ms_per_run("worker-"), "ms", one.cpu_ms_per_run("worker-")),
        figure("api_cpu_ms_per_run", four.cpu_ms_per_run("api"), "ms", one.cpu_ms_per_run("api")),
        figure("postgres_cpu_ms_per_run", with_four.cpu_ms, "ms", with_one.cpu_ms),
        figure("wal_kb_per_run", with_four.wal_bytes / 1000, "kB", with_one.wal_bytes / 1000),
        figure("stored_kb_per_run", with_four.stored_bytes / 1000, "kB", with_one.stored_bytes / 1000),
        figure("write_transactions_per_run", with_four.write_transactions, "", with_one.write_transactions),
        figure("transactions_per_run", with_four.transactions, "", with_one.transactions),
        figure("notifications_per_run", _notifications(with_four), "", _notifications(with_one)),
        Figure("deploy.connections_per_worker", _most(full), "", _most(one), f"with {SLOTS} slots instead of 48"),
        Figure("deploy.worker_memory_mb", _memory(full), "MB", _memory(one), f"with {SLOTS} slots instead of 48"),
    ]


def _standing_costs(measured: Measured) -> Sequence[Figure]:
    """The costs of processes as such, next to those of a run."""
    run = _per_run(measured.by_workers[max(WORKERS)])
    assert run.cpu_ms is not None
    assert measured.idle.cpu_ms is not None
    return [
        Figure("deploy.idle_transactions_per_s", measured.idle.transactions, "/s", run.transactions, "a run"),
        Figure("deploy.idle_postgres_ms_per_s", measured.idle.cpu_ms, "ms", run.cpu_ms, "a run"),
        Figure("deploy.notify_us_per_listener", measured.notify_us, "us", run.cpu_ms * 1000, "a run"),
    ]


def _per_run(report: LoadReport) -> DatabaseUse:
    assert report.database_per_run is not None
    return report.database_per_run


def _notifications(use: DatabaseUse) -> float:
    return sum(use.notifications.values())


def _most(report: LoadReport) -> float:
    """The connections of a worker: those under its name, and the one that listens."""
    assert report.connections is not None
    return report.connections.by_application["worker-1"] + 1


def _memory(report: LoadReport) -> float:
    """The memory of a worker. Raises RuntimeError where this user may not read it."""
    memory = next(process.pss_mb for process in report.processes if process.name == "worker-1")
    if memory is None:
        raise RuntimeError("the memory of a worker can be read by root only: measure as root")
    return memory
