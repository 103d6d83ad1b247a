"""The cost of tracing without a collector: two platforms, one of them traced to an address that does not answer."""

from dataclasses import dataclass, field
from statistics import median

from bench.figures import Figure
from bench.harness import BenchSetup
from bench.platform_process import Platform, free_port, up

NAMES = ("tracing.overhead_ratio",)
_WARM_UP, _RUNS = 20, 150


@dataclass(slots=True)
class _Side:
    """One of the two platforms and how long its runs took."""

    platform: Platform
    done: list[float] = field(default_factory=list[float])

    async def run(self) -> None:
        self.done.append((await self.platform.run()).done)


async def measure(setup: BenchSetup) -> list[Figure]:
    """Measure how much longer a run takes with spans than without; the two take turns, run by run."""
    setup.say("Spans that nobody takes")
    place = setup.place("plain")
    beside = setup.place("traced", OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{free_port()}")
    async with up(place) as (plain, _), up(beside) as (traced, _):
        await _in_turns(_Side(plain), _Side(traced), _WARM_UP)
        before = plain.cpu().server, traced.cpu().server
        without, with_spans = _Side(plain), _Side(traced)
        await _in_turns(without, with_spans, _RUNS)
        cpu = (traced.cpu().server - before[1]) / (plain.cpu().server - before[0])
    milliseconds = median(without.done)
    against = f"a run without spans, {milliseconds:.1f} ms; the server's processor time × {cpu:.2f}"
    return [Figure("tracing.overhead_ratio", median(with_spans.done) / milliseconds, "", 1.0, against)]


async def _in_turns(one: _Side, other: _Side, times: int) -> None:
    for _ in range(times):
        await one.run()
        await other.run()
