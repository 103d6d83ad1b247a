"""An OpenAI-compatible `/v1/embeddings`, whose vectors are those of the built-in embedder."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from starling.infra.embeddings.static_vectors import StaticEmbedder
from tests.support import http_server


@dataclass
class EmbeddingServer:
    """`/v1/embeddings`: vectors in reverse order with their index, as the API allows; or what `answer` says.

    A request that has one of the `refused` texts gets its status.
    """

    answer: Callable[[list[str]], tuple[int, Any]] | None = None
    refused: Mapping[str, int] = field(default_factory=dict[str, int])
    asked: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    may_answer: asyncio.Event | None = None  # requests of `waiting_from` texts or more wait for it
    waiting_from: int = 2

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[str]:
        """Listen; yield the base URL."""
        app = web.Application()
        app.router.add_post("/v1/embeddings", self.embeddings)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        listening = await http_server.start(runner, 0)
        host, port, *_ = runner.addresses[0]
        yield f"http://{host}:{port}/v1"
        await http_server.stop(runner, listening)

    async def embeddings(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.asked.append(body | {"authorization": request.headers.get("Authorization", "")})
        if self.may_answer and len(body["input"]) >= self.waiting_from:
            await self.may_answer.wait()
        if self.answer:
            status, answer = self.answer(body["input"])
            return web.json_response(answer, status=status)
        for text, status in self.refused.items():
            if text in body["input"]:
                return web.json_response({"error": {"message": "that text is refused"}}, status=status)
        vectors = await StaticEmbedder().embed(body["input"])
        data = [{"index": place, "embedding": [3 * x for x in vector]} for place, vector in enumerate(vectors)]
        return web.json_response({"data": data[::-1], "model": body["model"]})
