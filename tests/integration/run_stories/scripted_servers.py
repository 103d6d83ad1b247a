"""MCP servers over HTTP whose tools answer each run story as its script says.

Every tool takes `what`, and `ref`: that of the story, whose steps for the tool are taken in order, the last one
again and again. `count` promises an integer `n`. All servers listen on one port, each at a path of its own.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

import orjson
from aiohttp import web

from tests.support import http_server

_INPUT: Final = {
    "type": "object",
    "properties": {"what": {"type": "string"}, "ref": {"type": "string"}},
    "required": ["what"],
    "additionalProperties": False,
}
_NUMBER: Final = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@dataclass(frozen=True, slots=True)
class Step:
    """How one call is answered: with a result, a JSON-RPC error, an HTTP status, or never."""

    result: Mapping[str, Any] = field(default_factory=dict[str, Any])
    error: Mapping[str, Any] | None = None
    http_status: int = 200
    hangs: bool = False


def says(text: str) -> Step:
    return Step({"content": [{"type": "text", "text": text}]})


def fails(text: str) -> Step:
    """Return a result with `isError`."""
    return Step({"content": [{"type": "text", "text": text}], "isError": True})


def gives(**data: Any) -> Step:
    """Return a result with structured content."""
    return Step({"content": [{"type": "text", "text": orjson.dumps(data).decode()}], "structuredContent": data})


HANGS: Final = Step(hangs=True)


@dataclass
class ScriptedServers:
    """Servers by name with the names of their tools. `calls` counts what was called, `unscripted` what had no step."""

    tools: Mapping[str, Sequence[str]]
    steps: dict[tuple[str, str], Sequence[Step]] = field(default_factory=dict[tuple[str, str], Sequence[Step]])
    calls: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    unscripted: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/{server}", self._post)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        self._listening = await http_server.start(self._runner)
        return self

    async def __aexit__(self, *_: object) -> None:
        await http_server.stop(self._runner, self._listening)

    def url(self, server: str) -> str:
        host, port, *_ = self._runner.addresses[0]
        return f"http://{host}:{port}/{server}"

    async def _post(self, request: web.Request) -> web.Response:
        server, message = request.match_info["server"], orjson.loads(await request.read())
        if "id" not in message:
            return web.Response(status=202)
        step = self._step(server, message.get("method"), message.get("params") or {})
        if step.hangs:
            await asyncio.Event().wait()
        if step.http_status != 200:
            return web.Response(status=step.http_status, text="not now")
        content = {"error": step.error} if step.error else {"result": step.result}
        body = orjson.dumps({"jsonrpc": "2.0", "id": message["id"], **content})
        return web.Response(body=body, content_type="application/json")

    def _step(self, server: str, method: str, params: Mapping[str, Any]) -> Step:
        match method:
            case "initialize":
                info = {"name": server, "version": "1"}
                return Step({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info})
            case "tools/list":
                return Step({"tools": [_tool(name) for name in self.tools[server]]})
            case "tools/call":
                return self._call((params["arguments"].get("ref", ""), f"{server}.{params['name']}"))
            case _:
                return Step()

    def _call(self, key: tuple[str, str]) -> Step:
        self.calls[key] += 1
        if key not in self.steps:
            self.unscripted.add(key)
            return Step(error={"code": -32603, "message": "no step"})
        return self.steps[key][min(self.calls[key], len(self.steps[key])) - 1]


def _tool(name: str) -> dict[str, Any]:
    promise = {"outputSchema": _NUMBER} if name == "count" else {}
    return {"name": name, "description": f"{name.capitalize()} something.", "inputSchema": _INPUT, **promise}
