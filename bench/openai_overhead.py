"""What a completion of OpenAI's chat API takes beyond the run that answers it."""

from collections.abc import Sequence
from statistics import median
from time import perf_counter

import aiohttp

from bench.figures import Figure
from bench.harness import BenchSetup
from bench.platform_process import REQUEST, up

NAMES = ("openai.overhead_ms",)
ROUNDS = 12
REQUESTS = 15  # of each kind in a round, in alternation
_BODY = {"model": "starling", "stream": True, "messages": [{"role": "user", "content": REQUEST}]}


async def measure(setup: BenchSetup) -> Sequence[Figure]:
    """Measure completions and runs in alternation, each from its request to the event that ends it."""
    setup.say(f"{ROUNDS * REQUESTS} completions and as many runs, in alternation")
    await setup.model.delay(0)
    async with up(setup.place("openai")) as (platform, _), aiohttp.ClientSession(platform.url) as session:
        for _ in range(REQUESTS):
            await platform.run()
            await _completion(session)
        pairs = [((await platform.run()).done, await _completion(session)) for _ in range(ROUNDS * REQUESTS)]
    runs, completions = [run for run, _ in pairs], [completion for _, completion in pairs]
    overhead = median(completions) - median(runs)
    return [Figure("openai.overhead_ms", overhead, "ms", median(runs), "the run itself, from its request to `done`")]


async def _completion(session: aiohttp.ClientSession) -> float:
    """Return the milliseconds until the chunk with the reason of the end. Raises RuntimeError for another end."""
    begun, milliseconds, lines = perf_counter(), 0.0, list[bytes]()
    async with session.post("/v1/chat/completions", json=_BODY) as response:
        async for line in response.content:
            lines.append(line)
            if b'"finish_reason":"stop"' in line:
                milliseconds = (perf_counter() - begun) * 1000
    if lines[-2:] != [b"data: [DONE]\n", b"\n"] or not any(b'"status":"succeeded"' in line for line in lines):
        raise RuntimeError(f"the completion didn't come to its answer: {b''.join(lines).decode()}")
    return milliseconds
