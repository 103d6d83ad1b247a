"""Growth of the database: with the turns of a thread, and with the tasks of a run."""

import asyncio
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from statistics import median

from psycopg import AsyncConnection

from bench.figures import Figure
from bench.harness import BenchSetup
from bench.platform_process import Platform as RunningPlatform
from bench.platform_process import up
from bench.table_sizes import checkpoint_bytes, thread_sizes
from starling.core.settings.schema import Limits
from starling.infra.postgres.embedded.server import EmbeddedPostgres
from starling.infra.postgres.schema import upgrade
from tests.support.model_script import Answer
from tests.support.model_server import ModelServer
from tests.support.platform import (
    BENCH,
    Platform,
    ScriptedModel,
    calls,
    decision,
    open_platform,
    running_workbench,
    task,
    verdict,
)

THREAD_NAMES = ("thread.bytes_200_turns", "thread.rows_200_turns", "thread.turn_ratio_1000")
CHECKPOINT_NAMES = ("run.checkpoint_bytes",)
TURNS = 100  # twice
LONG, SHORT, COMPARED = 1_000, 10, 41  # turns of two threads, and how many further ones of each are compared
TASKS = Limits().tasks_per_plan
_ANSWER = "the answer"
_THREAD, _SHORT_THREAD = "a long conversation", "a short conversation"


async def measure_thread(setup: BenchSetup) -> list[Figure]:
    """Measure a thread of 200 turns next to what it was after 100, twice: more than that would be growth of growth."""
    setup.say(f"{2 * TURNS} turns on one thread")
    async with up(setup.place("thread")) as (platform, _):
        halves: list[dict[str, tuple[int, int]]] = []
        for _ in range(2):
            for _ in range(TURNS):
                await platform.run(_THREAD)
            sizes = await thread_sizes(platform.database, _THREAD)
            halves.append({name: (size.rows, size.bytes) for name, size in sizes.items()})
        late, early = await _turns(platform, setup)
    rows, size = ([sum(counts[part] for counts in half.values()) for half in halves] for part in (0, 1))
    most = sorted(halves[1].items(), key=lambda item: -item[1][1])[:4]
    parts = ", ".join(f"{name} {counts[1] / 1e6:.2f}" for name, counts in most if counts[1])
    return [
        Figure("thread.bytes_200_turns", size[1] / 1e6, "MB", 2 * size[0] / 1e6, f"twice those of 100 turns; {parts}"),
        Figure("thread.rows_200_turns", rows[1], "", 2 * rows[0], "twice those of 100 turns"),
        Figure("thread.turn_ratio_1000", late / early, "", 1, f"turn {SHORT} of another thread: {early:.1f} ms"),
    ]


async def _turns(platform: RunningPlatform, setup: BenchSetup) -> tuple[float, float]:
    """Return the milliseconds of a turn after 1,000 of its thread and after 10, taken by turns on one platform."""
    setup.say(f"{LONG} turns on that thread")
    for thread, turns in ((_THREAD, LONG - 2 * TURNS), (_SHORT_THREAD, SHORT)):
        for _ in range(turns):
            await platform.run(thread)
    timings = [(await platform.run(_THREAD), await platform.run(_SHORT_THREAD)) for _ in range(COMPARED)]
    return median(late.done for late, _ in timings), median(early.done for _, early in timings)


async def measure_checkpoints(setup: BenchSetup) -> list[Figure]:
    """Measure the most that the checkpoints of a run take while it goes on, next to those that it ends with."""
    setup.say(f"A run with {TASKS} tasks")
    script = ScriptedModel()
    async with open_scripted(script) as (platform, url):
        key = await platform.accept("How is everything?")
        _script(script)
        async with platform.executing(key) as life, await AsyncConnection.connect(url, autocommit=True) as connection:
            most, asked = 0, asyncio.get_running_loop().create_task(platform.model.received(1 + 2 * TASKS + 1))
            while not asked.done():
                most = max(most, await checkpoint_bytes(connection))
            last = await checkpoint_bytes(connection)
            platform.model.release(_ANSWER)
            await life
    return [
        Figure("run.checkpoint_bytes", max(most, last) / 1e3, "kB", last / 1e3, "those of the run before its answer")
    ]


def _script(script: ScriptedModel) -> None:
    script.supervisor(decision(*(task(f"t{number}", BENCH) for number in range(TASKS))))
    for number in range(TASKS):
        script.agent(f"t{number}", calls(("look", {"thing": sha256(f"{number}".encode()).hexdigest() * 4})))
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("Everything is fine [1].", hold=_ANSWER))


@asynccontextmanager
async def open_scripted(script: ScriptedModel) -> AsyncGenerator[tuple[Platform, str]]:
    """Open a platform in this process, whose model says what is written down."""
    with tempfile.TemporaryDirectory(prefix="starling-bench-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        with EmbeddedPostgres(folder / "data") as postgres, running_workbench(folder / "done") as workbench:
            await upgrade(postgres.url)
            servers = {"bench": workbench.as_server("read")}
            async with ModelServer(script) as model, open_platform(postgres.url, model, servers, folder) as platform:
                yield platform, postgres.url
