"""The model that benchmarks ask: answers as `offline:rules` does, each new request once and from then on from memory.

`python -m bench.benchmark_model [HOST:PORT] [MILLISECONDS]` prints its URL; without a port it takes a free one.
POST /delay/<milliseconds> sets how long every answer takes.
GET /calls gives what was asked since the last time, with the times at which each call came and was answered.
GET /waiting/<count> answers once so many calls wait for their answers.
"""

import asyncio
import signal
import sys
from collections import deque
from time import perf_counter
from typing import Any

import orjson
from aiohttp import web

from tests.support.model_script import Body, completion, parts
from tests.support.model_server import offline_rules

_CALLS_KEPT = 10_000  # a load test asks for hours


class Model:
    """Keeps every answer as the bytes that are sent: only the first asking of a request costs anything."""

    def __init__(self, delay: float = 0.0) -> None:
        self._answers: dict[bytes, bytes] = {}
        self._calls: deque[dict[str, Any]] = deque(maxlen=_CALLS_KEPT)
        self._delay = delay  # seconds
        self._waiting = 0
        self._news = asyncio.Condition()
        self.app = web.Application(client_max_size=64 * 1024**2)
        self.app.router.add_post("/v1/chat/completions", self._complete)
        self.app.router.add_post("/delay/{milliseconds}", self._set_delay)
        self.app.router.add_get("/calls", self._told)
        self.app.router.add_get("/waiting/{count}", self._wait)

    async def _complete(self, request: web.Request) -> web.Response:
        begun = perf_counter()
        asked = await request.read()
        body: Body = orjson.loads(asked)
        answer = self._answers.get(asked)
        if answer is None:
            answer = self._answers[asked] = await _answer(body)
        self._waiting += 1
        async with self._news:
            self._news.notify_all()
        try:
            await asyncio.sleep(self._delay)
        finally:
            self._waiting -= 1
        self._calls.append({"body": body, "begun": begun, "ended": perf_counter()})
        kind = "text/event-stream" if body.get("stream") else "application/json"
        return web.Response(body=answer, content_type=kind)

    async def _set_delay(self, request: web.Request) -> web.Response:
        self._delay = float(request.match_info["milliseconds"]) / 1000
        return web.Response(status=204)

    async def _wait(self, request: web.Request) -> web.Response:
        async with self._news:
            await self._news.wait_for(lambda: self._waiting >= int(request.match_info["count"]))
        return web.Response(status=204)

    async def _told(self, _: web.Request) -> web.Response:
        calls = list(self._calls)
        self._calls.clear()
        return web.Response(body=orjson.dumps(calls), content_type="application/json")


async def _answer(body: Body) -> bytes:
    answer = await offline_rules(body)
    if not body.get("stream"):
        return orjson.dumps(completion(body, answer))
    return b"".join(b"data: %b\n\n" % orjson.dumps(part) for part in parts(body, answer)) + b"data: [DONE]\n\n"


async def _serve(address: str = "127.0.0.1:0", milliseconds: str = "0") -> None:
    host, _, port = address.rpartition(":")
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    runner = web.AppRunner(Model(float(milliseconds) / 1000).app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, host, int(port)).start()
    print(f"http://{host}:{runner.addresses[0][1]}", flush=True)
    await stopped.wait()
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(_serve(*sys.argv[1:]))
