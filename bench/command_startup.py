"""How long commands take to start, compared with an empty Python program."""

import asyncio
import compileall
import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from statistics import median
from time import perf_counter

import aiohttp

from bench.figures import Figure
from bench.harness import BenchSetup
from bench.line_process import HERE, inherited, python, running
from bench.platform_process import Place, answered, free_port, up

_PARTS = ("imports", "database", "schema", "servers", "API")
NAMES = (
    *("cli.help_ms", "cli.list_cpu_ms", "up.ready_ms", "up.first_ready_ms"),
    *(f"up.first_ready_ms.{part}" for part in _PARTS),
    *("up.first_answer_ms", "up.first_answer_ms_at_once", "up.start_to_answer_ms"),
)
type _Times = tuple[float, str, float]  # a figure's value, unit and reference
_LATER_SECONDS = 5.0  # from ready to the first request of somebody who reads what `up` printed

_HELP = python("-c", "from starling.app.cli import main; main()", "--help")
_TYPER = python("-c", "import typer; typer.Typer()")
_LIST = python("-c", "from starling.app.cli import main; main()", "run", "list")
_ONLY_TYPER = python("-c", "import typer")
_SERVER = """
import sys, fastapi, uvicorn
app = fastapi.FastAPI()
app.get("/ready")(lambda: {})
uvicorn.run(app, port=int(sys.argv[1]), log_level="error")
"""


async def measure(setup: BenchSetup) -> list[Figure]:
    """Measure `starling --help`, `starling run list` against a running platform, and `starling up`."""
    setup.say("Starts")
    ours, bare = await _help_times()
    figure = Figure("cli.help_ms", ours, "ms", bare, "python -c 'import typer'")
    place = setup.place("starts")
    await asyncio.to_thread(compileall.compile_dir, HERE.parent / "src", quiet=2)  # as an installation does
    async with up(place) as (platform, first):  # makes the data
        first_parts = platform.seconds
        await platform.run()
        ours, bare = await asyncio.to_thread(_list_cpu, {"STARLING_DATA_DIR": str(place.data)})
    listing = Figure("cli.list_cpu_ms", ours, "ms", bare, "python -c 'import typer', processor time")
    ours, bare, parts = await _ready_times(place)
    later, (at_once, whole) = await _first_answer(place), await _start_to_answer(place)
    causes = [
        Figure(f"up.first_ready_ms.{part}", first_parts[part] * 1000, "ms", parts[part] * 1000, "a later start")
        for part in _PARTS
    ]
    return [
        figure,
        listing,
        Figure("up.ready_ms", ours, "ms", bare, "a bare FastAPI; data is there already"),
        Figure("up.first_ready_ms", first, "ms", bare, "a bare FastAPI; initdb, migrations, listing of servers"),
        *causes,
        Figure("up.first_answer_ms", *later, f"a later run; {_LATER_SECONDS:g} s after ready"),
        Figure("up.first_answer_ms_at_once", *at_once, "a later run; as soon as it is ready"),
        Figure("up.start_to_answer_ms", *whole, "a bare FastAPI's start; from the start of the process"),
    ]


async def _help_times(repetitions: int = 7) -> tuple[float, float]:
    """Return the median milliseconds of `starling --help` and of a program that only imports Typer."""
    ours: list[float] = []
    bare: list[float] = []
    for _ in range(repetitions):
        ours.append(await _time(_HELP))
        bare.append(await _time(_TYPER))
    return median(ours), median(bare)


def _list_cpu(environment: dict[str, str], repetitions: int = 7) -> tuple[float, float]:
    """Return the median processor milliseconds of `starling run list` and of a program that only imports Typer."""
    ours: list[float] = []
    bare: list[float] = []
    for _ in range(repetitions):
        ours.append(_cpu(_LIST, environment))
        bare.append(_cpu(_ONLY_TYPER, environment))
    return median(ours), median(bare)


def _cpu(command: Sequence[str], environment: dict[str, str]) -> float:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=inherited(environment))
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
    return (used.ru_utime + used.ru_stime) * 1000


async def _ready_times(place: Place, repetitions: int = 5) -> tuple[float, float, dict[str, float]]:
    """Return the median milliseconds until `starling up` and a bare FastAPI are ready, and seconds of its parts."""
    ours: list[float] = []
    bare: list[float] = []
    parts: list[Mapping[str, float]] = []
    for _ in range(repetitions):
        async with up(place) as (platform, milliseconds):
            ours.append(milliseconds)
            parts.append(platform.seconds)
        bare.append(await _time_bare_server())
    return median(ours), median(bare), {part: median(each[part] for each in parts) for part in _PARTS}


async def _start_to_answer(place: Place, repetitions: int = 5) -> tuple[_Times, _Times]:
    """Return the times of a run that is sent as soon as the platform is ready: its own, and from the start on.

    The first is beside a later run, the second beside the start of a bare FastAPI in alternation; medians.
    """
    first, later, whole, bare = _lists(4)
    for _ in range(repetitions):
        async with up(place) as (platform, _):
            first.append((await platform.run()).done)
            whole.append((perf_counter() - platform.begun) * 1000)
            later.append((await platform.run()).done)
        bare.append(await _time_bare_server())
    return (median(first), "ms", median(later)), (median(whole), "ms", median(bare))


async def _first_answer(place: Place, repetitions: int = 3) -> _Times:
    """Return the times of the first run of a start, some seconds after ready, and of the runs after it; medians."""
    first, later = _lists(2)
    for _ in range(repetitions):
        async with up(place) as (platform, _):
            await asyncio.sleep(_LATER_SECONDS)
            first.append((await platform.run()).done)
            later += [(await platform.run()).done for _ in range(repetitions)]
    return median(first), "ms", median(later)


def _lists(count: int) -> list[list[float]]:
    return [[] for _ in range(count)]


async def _time(command: Sequence[str]) -> float:
    begun = perf_counter()
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL, env=inherited({}))
    if await process.wait():
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
    return (perf_counter() - begun) * 1000


async def _time_bare_server() -> float:
    port = free_port()
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())
        begun = perf_counter()
        process = await stack.enter_async_context(running(python("-c", _SERVER, str(port))))
        await answered(session, f"http://127.0.0.1:{port}/ready", process)
        return (perf_counter() - begun) * 1000
