"""A fork at the last task of a run, next to the whole run, both in this process and in turns."""

import time
from collections.abc import Awaitable, Callable
from statistics import median

from bench.figures import Figure
from bench.harness import BenchSetup
from bench.thread_growth import open_scripted
from starling.core.runs import ForkRequest
from starling.infra.postgres.runs.acceptance import RunKey
from tests.support.model_script import Answer
from tests.support.platform import BENCH, Platform, ScriptedModel, calls, decision, task, verdict

NAMES = ("run.fork_ms",)
ROUNDS = 25


async def measure(setup: BenchSetup) -> list[Figure]:
    """Measure the time from acceptance to the end of a fork that inherits two of three tasks."""
    setup.say(f"{ROUNDS} runs and their forks at the last task")
    script = ScriptedModel()
    forks: list[float] = []
    runs: list[float] = []
    async with open_scripted(script) as (platform, _):
        script.supervisor(decision(task("t1", BENCH), task("t2", BENCH), task("t3", BENCH, after=["t1", "t2"])))
        for name in ("t1", "t2", "t3"):
            script.agent(name, calls(("look", {"thing": name})))
        script.reviewer(verdict("APPROVED"))
        script.qa(Answer("Everything is fine [1][2][3]."))
        for number in range(ROUNDS):
            run, took = await _timed(platform, lambda at=number: platform.accept("How is it?", thread=f"{at}"))
            runs.append(took)
            forks.append((await _timed(platform, lambda original=run: _fork(platform, original)))[1])
    return [Figure("run.fork_ms", median(forks), "ms", median(runs), "the whole run of three tasks")]


async def _timed(platform: Platform, accept: Callable[[], Awaitable[RunKey]]) -> tuple[RunKey, float]:
    """Return a run and the milliseconds from its acceptance to its end."""
    begun = time.perf_counter()
    key = await accept()
    result = await platform.brain.execute(await platform.claim(key))
    if result is None or result.status != "succeeded":
        raise RuntimeError(f"run {key.id} came to no answer")
    return key, (time.perf_counter() - begun) * 1000


async def _fork(platform: Platform, original: RunKey) -> RunKey:
    accepted = await platform.services.forks.accept(platform.caller, original.id, ForkRequest(at="t3"))
    return RunKey(original.tenant, accepted.started.run_id)
