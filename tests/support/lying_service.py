"""An execution service in the test's own process that answers as it is told: truthfully, wrongly or not at all."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.support import http_server
from tests.support.gateway_harness import free_port

SCHEMA: Mapping[str, Any] = {"type": "object", "properties": {"how": {"type": "string"}}, "required": ["how"]}
TOOLS = [{"name": name, "description": f"{name} it.", "input_schema": SCHEMA} for name in ("act", "look")]
FINE = {"status": "success", "output": "fine"}


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer. `cut` ends the connection without one, or after `body` if there is one; `hang` never answers."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    cut: bool = False
    hang: bool = False
    once: bool = False  # the next call with the same `how` is answered as usual

    @classmethod
    def of(cls, document: Any, status: int = 200, **headers: str) -> "Reply":
        return cls(json.dumps(document).encode(), status, {"content-type": "application/json", **headers})


@dataclass(frozen=True, slots=True)
class Request:
    """What the service was asked."""

    path: str
    headers: Mapping[str, str]
    body: Any


@dataclass
class LyingService:
    """A service on one port, which can end and start again. `replies` has its answers by the argument `how`."""

    replies: dict[str, Reply] = field(default_factory=dict[str, Reply])
    tools: Reply = field(default_factory=lambda: Reply.of({"tools": TOOLS}))
    others: Reply = field(default_factory=lambda: Reply.of({}))  # to all else, as what a context service is told
    requests: list[Request] = field(default_factory=list[Request])
    port: int = field(default_factory=free_port)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def executed(self, how: str) -> list[Request]:
        """Return the calls that arrived with this argument."""
        calls = [request for request in self.requests if request.path.endswith("/execute")]
        return [request for request in calls if request.body["arguments"].get("how") == how]

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator["LyingService"]:
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        listening = await http_server.start(runner, self.port)
        try:
            yield self
        finally:
            await http_server.stop(runner, listening)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body: Any = await request.json() if request.can_read_body else None
        self.requests.append(Request(request.path, dict(request.headers), body))
        if request.path.endswith("/tools"):
            reply = self.tools
        elif request.path.endswith("/execute"):
            assert body is not None
            how = str(body["arguments"].get("how"))
            reply = self.replies.get(how) or Reply.of(FINE)
            if reply.once:
                del self.replies[how]
        else:
            reply = self.others
        return await _sent(request, reply)


async def _sent(request: web.Request, reply: Reply) -> web.StreamResponse:
    response = web.StreamResponse(status=reply.status, headers=reply.headers)
    if reply.hang:
        await asyncio.Event().wait()
    if reply.cut and not reply.body:
        assert request.transport is not None
        request.transport.abort()
        return response
    length = len(reply.body) * (2 if reply.cut else 1)
    response.content_length = length
    await response.prepare(request)
    await response.write(reply.body)
    if reply.cut:
        assert request.transport is not None
        request.transport.abort()
    return response
