"""A brainstem for tests: an HTTP service that answers each request for bounds with what it is given."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from tests.support import http_server


class BrainstemServer:
    """Answers with `answer`: a document, or a text as it is. Keeps what it was asked, the tokens and the traces."""

    def __init__(self, answer: Mapping[str, Any] | str | None = None, status: int = 200) -> None:
        self.answer: Mapping[str, Any] | str = {} if answer is None else answer
        self.status = status
        self.asked: list[dict[str, Any]] = []
        self.tokens: set[str | None] = set()
        self.traces: list[str | None] = []
        self.silent = False
        """Whether it gives no answer until it ends."""
        self._ended = asyncio.Event()

    async def _evaluate(self, request: web.Request) -> web.Response:
        self.asked.append(await request.json())
        self.tokens.add(request.headers.get("Authorization"))
        self.traces.append(request.headers.get("traceparent"))
        if self.silent:
            await self._ended.wait()
        if isinstance(self.answer, str):
            return web.Response(status=self.status, text=self.answer)
        return web.json_response(self.answer, status=self.status)

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[str]:
        """Yield the address."""
        app = web.Application()
        app.router.add_post("/base/evaluate", self._evaluate)
        app.router.add_route("OPTIONS", "/base", self._options)
        runner = web.AppRunner(app, shutdown_timeout=0)
        listening = await http_server.start(runner)
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/base"
        finally:
            self._ended.set()
            await http_server.stop(runner, listening)

    async def _options(self, request: web.Request) -> web.Response:
        del request
        return web.Response()
