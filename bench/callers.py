"""Callers of a platform: each sends the next request when its last one has ended; what they waited, and what failed."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from statistics import quantiles
from time import perf_counter, time_ns
from typing import Any, cast

import aiohttp
import orjson

_CONNECT_SECONDS = 10
_EVENT_BYTES = 2**24  # that an event may have at least
_PAUSE_SECONDS = 0.5  # after a run that failed: a platform that refuses must not be asked thousands of times


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run as its caller saw it. `ended` is in `perf_counter`; `error` says what kind failed, empty for success."""

    ended: float
    seconds: float
    error: str = ""


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Milliseconds that half, 95 % and 99 % of the runs needed at most, and the longest."""

    p50: float
    p95: float
    p99: float
    longest: float

    @classmethod
    def of(cls, milliseconds: Sequence[float]) -> "Percentiles | None":
        """Return the percentiles, None for no values."""
        if not milliseconds:
            return None
        if len(milliseconds) == 1:
            return cls(*([milliseconds[0]] * 4))
        cuts = quantiles(milliseconds, n=100, method="inclusive")
        return cls(cuts[49], cuts[94], cuts[98], max(milliseconds))


@dataclass(frozen=True, slots=True)
class Window:
    """The runs that ended while the load was measured."""

    begun: float
    ended: float
    outcomes: Sequence[Outcome]

    @property
    def seconds(self) -> float:
        return self.ended - self.begun

    @property
    def succeeded(self) -> Sequence[Outcome]:
        return [one for one in self.outcomes if not one.error]

    @property
    def runs_per_second(self) -> float:
        return len(self.succeeded) / self.seconds

    @property
    def latency(self) -> Percentiles | None:
        return Percentiles.of([one.seconds * 1000 for one in self.succeeded])

    @property
    def errors(self) -> Mapping[str, int]:
        """Return how many runs failed by kind, the most frequent first."""
        return dict(Counter(one.error for one in self.outcomes if one.error).most_common())

    @classmethod
    def of(cls, begun: float, ended: float, outcomes: Sequence[Outcome]) -> "Window":
        """Keep the outcomes between the two times; those of the warm-up and of the end don't count."""
        return cls(begun, ended, [one for one in outcomes if begun < one.ended <= ended])


def open_session(url: str, key: str = "") -> aiohttp.ClientSession:
    """Return a session for any number of callers of the API at `url`."""
    return aiohttp.ClientSession(
        url,
        headers={"Authorization": f"Bearer {key}"} if key else {},
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),  # callers have a limit of their own
        read_bufsize=_EVENT_BYTES,
    )


@dataclass(frozen=True, slots=True)
class Caller:
    """Sends one request after another. Each is on a thread of its own: runs of one thread would wait for each other."""

    session: aiohttp.ClientSession
    request: str
    timeout: float = 120.0  # seconds

    async def run(self) -> Outcome:
        """Send the request and read its stream to the end."""
        begun = perf_counter()
        try:
            async with asyncio.timeout(self.timeout):
                error = await self._error_of_run()
        except aiohttp.ClientError as failure:  # also one that took too long to connect, which is a TimeoutError, too
            error = f"connection: {type(failure).__name__}"
        except TimeoutError:
            error = f"no end within {self.timeout:g} s"
        ended = perf_counter()
        return Outcome(ended, ended - begun, error)

    async def _error_of_run(self) -> str:
        asked = {"input": self.request, "thread_id": f"load-{_STARTED}-{next(_THREADS)}"}
        async with self.session.post("v1/agent/run", json=asked) as response:
            if response.status != 200:
                return f"HTTP {response.status} {_code_of(await response.read())}".strip()
            codes: list[str] = []
            async for line in response.content:
                if line.startswith(b"data: ") and (ending := _ending(line[6:], codes)) is not None:
                    return ending
        return "the stream ended before the run"


async def drive[Sample](
    caller: Caller, callers: int, *, warm_up: float, seconds: float, sample: Callable[[], Awaitable[Sample]]
) -> tuple[Window, Sample, Sample]:
    """Keep so many callers at work for a warm-up and the measured time, and let their last runs end.

    Returns the window, and what `sample` gave at its begin and its end.
    """
    outcomes: list[Outcome] = []
    stopped = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for _ in range(callers):
            group.create_task(_repeat(caller, outcomes, stopped))
        await asyncio.sleep(warm_up)
        before, begun = await sample(), perf_counter()
        await asyncio.sleep(seconds)
        ended, after = perf_counter(), await sample()
        stopped.set()
    return Window.of(begun, ended, outcomes), before, after


async def _repeat(caller: Caller, outcomes: list[Outcome], stopped: asyncio.Event) -> None:
    while not stopped.is_set():
        outcome = await caller.run()
        outcomes.append(outcome)
        if outcome.error:
            await asyncio.sleep(_PAUSE_SECONDS)


def _ending(data: bytes, codes: list[str]) -> str | None:
    """Return what kind of failure the event `done` is, empty for a success, None for other events.

    The code of an `error` event is added to `codes`: it names the failure better than the status.
    """
    if b'"error"' not in data and b'"done"' not in data:
        return None
    event = _object(data)
    if event.get("type") == "error":
        codes.append(str(event.get("code")))
    if event.get("type") != "done":
        return None
    status = event.get("status")
    return "" if status == "succeeded" else " ".join([f"run {status}", *codes[-1:]])


def _code_of(body: bytes) -> str:
    return str(_object(body).get("code", ""))


def _object(text: bytes) -> Mapping[str, Any]:
    """Return a JSON object; an empty one for anything else, which proxies answer."""
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


_STARTED = time_ns()  # threads of an earlier load test must not be continued
_THREADS = count(1)
