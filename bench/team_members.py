"""What a member of a team costs with either runtime, and how long fifty at once stop the event loop of a worker.

`python -m bench.team_members` measures in a process of its own, whose first member imports CrewAI, and prints JSON.
"""

import asyncio
import json
from contextlib import suppress
from time import perf_counter, process_time
from typing import Final

from bench.figures import Figure
from bench.harness import BenchSetup
from bench.line_process import line_of, python, running
from brain.agents.turn.pipeline import Pipeline
from starling.app.cli.process_setup import freeze_startup_objects
from starling.core.agents import RuntimeName
from tests.support.in_memory_run import Execution, tool_calls
from tests.support.model_documents import verdict_json
from tests.support.runtime_harness import RuntimeHarness, dispatch

NAMES: Final = ("team.member_cpu_ms_crewai", "team.member_cpu_ms_native", "team.loop_stall_ms_50_crews")
_AT_ONCE: Final = 50
_TIMES: Final = 200
_TURNS: Final = (
    tool_calls(("look", {"thing": "tea"}), ("order", {"item": "tea"})),
    tool_calls(("look", {"thing": "milk"})),
)


async def measure(setup: BenchSetup) -> list[Figure]:
    """Measure members that call three tools in two turns and are reviewed; models and tools take no time."""
    setup.say("Members of a team")
    async with running(python("-m", "bench.team_members")) as process:
        measured = json.loads(await line_of(process))
    crewai, native, text = (measured[name] for name in ("crewai", "native", "text"))
    return [
        Figure(NAMES[0], crewai, "ms", native, "the same with the native runtime"),
        Figure(NAMES[1], native, "ms", text, "a member without tools"),
        Figure(NAMES[2], measured["stall"], "ms", measured["stall_native"], "fifty with the native runtime"),
    ]


async def _measured() -> dict[str, float]:
    freeze_startup_objects()  # as workers do
    stall = await _stall("crewai")  # first, so that it includes the import
    found = {"stall": stall, "stall_native": await _stall("native")}
    return found | {name: await _milliseconds(name) for name in ("crewai", "native")} | {"text": await _text()}


async def _stall(runtime: RuntimeName) -> float:
    """Return the longest time, in milliseconds, that the loop did nothing else while fifty members worked."""
    harness = RuntimeHarness(runtime)
    pipeline, begun = harness.pipeline(), [_begin(harness) for _ in range(_AT_ONCE)]
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        last = perf_counter()
        while True:
            await asyncio.sleep(0)
            now = perf_counter()
            longest, last = max(longest, now - last), now

    async with asyncio.TaskGroup() as group:
        watching = group.create_task(watch())
        async with asyncio.TaskGroup() as members:
            for one in begun:
                members.create_task(_work(pipeline, one))
        watching.cancel()
    return longest * 1_000


async def _milliseconds(runtime: RuntimeName) -> float:
    """Return the processor time of a member, one after another."""
    harness = RuntimeHarness(runtime)
    pipeline, members = harness.pipeline(), [_begin(harness) for _ in range(_TIMES)]
    begun = process_time()
    for member in members:
        await _work(pipeline, member)
    return (process_time() - begun) / _TIMES * 1_000


async def _text() -> float:
    harness = RuntimeHarness("native", tools=())
    pipeline = harness.pipeline()
    members = [harness.begin("Tea is good.", verdict_json("APPROVED")) for _ in range(_TIMES)]
    begun = process_time()
    for member in members:
        await _work(pipeline, member)
    return (process_time() - begun) / _TIMES * 1_000


def _begin(harness: RuntimeHarness) -> Execution:
    return harness.begin(*harness.answers(*_TURNS), verdict_json("APPROVED"))


async def _work(pipeline: Pipeline, member: Execution) -> None:
    outcome = await pipeline.run(member.context, dispatch())
    if outcome["status"] != "approved":
        raise RuntimeError(outcome["reason"])


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        print(json.dumps(asyncio.run(_measured())), flush=True)
