"""The model that benchmarks ask: answers as `offline:rules` does, each new request once and from then on from memory.

`python -m bench.benchmark_model` prints its URL. POST /delay/<milliseconds> sets how long every answer takes.
GET /calls gives what was asked since the last time, with the times at which each call came and was answered.
GET /waiting/<count> answers once so many calls wait for their answers.
"""

import asyncio
import signal
from time import perf_counter
from typing import Any

import orjson
from aiohttp import web

from tests.support.model_script import Body, completion, parts
from tests.support.model_server import offline_rules


class Model:
    """Keeps every answer as the bytes that are sent: only the first asking of a request costs anything."""

    def __init__(self) -> None:
        self._answers: dict[bytes, bytes] = {}
        self._calls: list[dict[str, Any]] = []
        self._delay = 0.0
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
        calls, self._calls = self._calls, []
        return web.Response(body=orjson.dumps(calls), content_type="application/json")


async def _answer(body: Body) -> bytes:
    answer = await offline_rules(body)
    if not body.get("stream"):
        return orjson.dumps(completion(body, answer))
    return b"".join(b"data: %b\n\n" % orjson.dumps(part) for part in parts(body, answer)) + b"data: [DONE]\n\n"


async def _serve() -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    runner = web.AppRunner(Model().app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await stopped.wait()
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(_serve())
