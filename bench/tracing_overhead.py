"""The cost of tracing with all of it on: one of two platforms sends spans and scores to a Langfuse that takes them."""

import json
import threading
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from statistics import median

from bench.figures import Figure
from bench.harness import BenchSetup
from bench.platform_process import Platform, up

NAMES = ("tracing.overhead_ratio",)
_WARM_UP, _RUNS = 20, 150
_PATHS = 2  # of spans and of scores


class _Handler(BaseHTTPRequestHandler):
    """Takes spans and scores without reading them, and has no prompts."""

    protocol_version = "HTTP/1.1"
    taken: Counter[str]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.taken[self.path] += 1
        self._answer(202 if self.path.endswith("/scores") else 200, {"message": "Accepted"})

    def do_GET(self) -> None:
        self._answer(404, {"message": "Not found"})

    def _answer(self, status: int, body: object) -> None:
        content = b"" if self.path.endswith("/traces") else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - of the base class
        """Log nothing."""


@contextmanager
def _langfuse() -> Generator[tuple[str, Counter[str]]]:
    """Serve in a thread; yield the address and the requests that it took, by path."""
    taken: Counter[str] = Counter()
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"taken": taken})) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", taken
        server.shutdown()


@dataclass(slots=True)
class _Side:
    """One of the two platforms and how long its runs took."""

    platform: Platform
    done: list[float] = field(default_factory=list[float])

    async def run(self) -> None:
        self.done.append((await self.platform.run()).done)


async def measure(setup: BenchSetup) -> list[Figure]:
    """Measure how much longer a run takes with spans and scores than without; the two take turns, run by run."""
    setup.say("Spans and scores that somebody takes")
    with _langfuse() as (address, taken):
        keys = {"LANGFUSE_PUBLIC_KEY": "pk-lf-bench", "LANGFUSE_SECRET_KEY": "sk-lf-bench"}
        place, beside = setup.place("plain"), setup.place("traced", LANGFUSE_HOST=address, **keys)
        async with up(place) as (plain, _), up(beside) as (traced, _):
            await _in_turns(_Side(plain), _Side(traced), _WARM_UP)
            before = plain.cpu().server, traced.cpu().server
            without, with_spans = _Side(plain), _Side(traced)
            await _in_turns(without, with_spans, _RUNS)
            cpu = (traced.cpu().server - before[1]) / (plain.cpu().server - before[0])
        if len(taken) < _PATHS:
            raise RuntimeError(f"only {dict(taken)} was sent: this measures nothing")
    milliseconds = median(without.done)
    against = f"a run without spans, {milliseconds:.1f} ms; the server's processor time × {cpu:.2f}"
    return [Figure("tracing.overhead_ratio", median(with_spans.done) / milliseconds, "", 1.0, against)]


async def _in_turns(one: _Side, other: _Side, times: int) -> None:
    for _ in range(times):
        await one.run()
        await other.run()
