"""How long one request stops the event loop of the API: the largest and the worst bodies that each route takes."""

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import aiohttp

from bench.figures import Figure
from bench.harness import BenchSetup
from bench.platform_process import Platform, admin_session, free_port, up

NAMES: Final = ("api.loop_stall_ms",)
_VALUES, _SERVER_VALUES, _SERVERS, _LINES = 9_990, 19_990, 2_000, 5_000  # limits, or just below
_BYTES, _LINES_BYTES = 3 * 2**19 - 1_000, 2**23
_NOBODYS: Final = "01a1f8ac-cbf4-7cdd-97b7-5ad5f772744e"
_IDLE_SECONDS: Final = 3.0
_SLOW: Final = 50.0  # milliseconds
_SKILL: Final[Mapping[str, Any]] = {
    "format": "starling.skill",
    "version": 1,
    "task": "How full is /tmp?",
    "template": "How full is {path}?",
    "calls": [{"tool": "shop.disk", "arguments": {"path": {"slot": "path", "from": "task", "example": "/tmp"}}}],
    "outcome": "It is half full.",
    "tools": {"shop.disk": "hash"},
    "agent_kind": "specialist",
    "agent": "mcp_agent_shop",
}


async def measure(setup: BenchSetup) -> list[Figure]:
    """Measure the slowest light request while costly bodies are read, next to the slowest one without them."""
    setup.say("Costly bodies, and the event loop of the API")
    place = setup.place("bodies", LOG_LEVEL="ERROR")
    async with up(place) as (platform, _), admin_session(platform, place) as session:
        idle = await _slowest(platform, asyncio.create_task(asyncio.sleep(_IDLE_SECONDS)))
        stalls: dict[str, float] = {}
        for path, method, name, body in await _bodies(session):
            stalls[f"{name} to {method} {path}"] = await _stall(platform, session, method, path, body)
    worst = max(stalls, key=lambda kind: stalls[kind])
    return [Figure(NAMES[0], stalls[worst], "ms", idle, f"without other requests (worst: {worst})")]


async def _bodies(session: aiohttp.ClientSession) -> list[tuple[str, str, str, bytes]]:
    """Return paths, methods, and the bodies to send there with their names."""
    async with session.get("/openapi.json") as response:
        paths: dict[str, dict[str, Any]] = (await response.json())["paths"]
    routes = [(path, method) for path, methods in paths.items() for method in methods]
    taking = [(path, method) for path, method in routes if "requestBody" in paths[path][method]]
    return [
        (re.sub(r"\{.*?\}", _NOBODYS, path), method, name, body)
        for path, method in taking
        for name, body in [*_COSTLY.items(), *_costly_to(path)]
    ]


def _keys(count: int) -> dict[str, int]:
    return {f"k{number}": 0 for number in range(count)}


_COSTLY: Final = {
    "unknown keys": json.dumps(_keys(_VALUES)).encode(),
    "items": json.dumps([1] * _VALUES).encode(),
    "objects": json.dumps([{}] * _VALUES).encode(),
    "a long text": json.dumps({"input": "x" * _BYTES}).encode(),
    "commas": json.dumps({"input": "," * _BYTES}).encode(),
    "too many lists": b"[" + b"[]," * (_BYTES // 3) + b"[]]",
    "too many levels": b"[" * _BYTES,
    "a quarter MiB": json.dumps({"input": ",x" * 9_990 + "x" * 240_000}).encode(),
}


def _costly_to(path: str) -> Iterator[tuple[str, bytes]]:
    match path:
        case "/v1/runs" | "/process" | "/v1/agent/run":
            yield "a long config", json.dumps({"input": "x", "thread_id": "t", "config": _keys(_VALUES)}).encode()
        case "/v1/teams" | "/v1/teams/{name}/prove":
            yield "wrong cases", json.dumps({"goal": "x", "cases": [1] * _VALUES}).encode()
        case "/v1/teams/check" | "/v1/teams/{name}/versions":
            yield "a wrong spec", json.dumps({"spec": {"members": [1] * _VALUES}}).encode()
            yield "unknown parts", json.dumps({"spec": _keys(_VALUES)}).encode()
        case "/v1/agents":
            yield "wrong tools", json.dumps({"id": "a", "tools": [1] * _VALUES}).encode()
        case "/v1/chat/completions" | "/v1/responses":
            name = "input" if path.endswith("responses") else "messages"
            text = f"TURN{'x' * 950}"
            said = [{"role": role, "content": text} for _ in range(1_499) for role in ("user", "assistant")]
            hello = {"role": "user", "content": "hello"}
            yield "a long conversation", json.dumps({"model": "starling", name: [*said, hello]}).encode()
            yield "wrong messages", json.dumps({"model": "starling", name: [{}] * _SERVER_VALUES}).encode()
        case "/v1/registry/plan" | "/v1/registry/reload":
            yield "too many servers", _servers(_SERVER_VALUES, 1)
            yield "servers with wrong keys", _servers(_SERVERS, {"command": 1, "args": [1] * 6})
            yield "a server with wrong keys", _servers(1, {"args": [1] * _SERVER_VALUES})
            yield "servers", _servers(_SERVERS, {"url": f"http://127.0.0.1:{free_port()}/mcpTURN"})
            yield "a server with one long text", _servers(1, {"command": "no-such-server", "args": ["TURN," * 290_000]})
            yield (
                "a server with long texts",
                _servers(1, {"command": "no-such-server", "args": ["TURN," * 19_000] * 15}),
            )
            yield "a server with long secrets", _servers(1, _with_tokens(14, "TURN%3D</" * 11_000))
            yield "servers with secrets", _servers(_SERVERS - 1, _with_tokens(8, "TURN%3D</$"))
        case "/v1/skills/import":
            yield "wrong lines", b"{}\n" * _LINES
            yield "a wrong long line", json.dumps({**_SKILL, **_keys(_VALUES - 20)}).encode() + b"\n"
            yield "skills", b"".join(_skill(number, 20) for number in range(_LINES))
            yield "long skills", b"".join(_skill(number, _LINES_BYTES // _LINES - 700) for number in range(_LINES))
            yield "skills with the longest texts", b"".join(map(_longest_skill, range(_LINES_BYTES // 90_000)))
        case _:
            pass


def _servers(count: int, server: object) -> bytes:
    return json.dumps({"mcpServers": {f"s{number}": server for number in range(count)}}).encode()


def _with_tokens(count: int, text: str) -> dict[str, object]:
    return {"url": "http://127.0.0.1:9/mcpTURN", "headers": {f"{number}-Token": text for number in range(count)}}


def _skill(number: int, chars: int) -> bytes:
    call = {"tool": "shop.disk", "arguments": {"path": f"TURN{number:x<{chars}}"}}
    return json.dumps({**_SKILL, "task": f"How full is /tmp/TURN{number}?", "calls": [call]}).encode() + b"\n"


def _longest_skill(number: int) -> bytes:
    """Return a line with the longest text that each field may have, of words that are searched for instructions."""
    text = f"TURN{number} " + "if asked " * 2_500
    texts: dict[str, object] = {"task": text[:4_000], "template": text[:4_000], "outcome": text[:1_000]}
    texts |= {"code": text[:20_000], "examples": [f"{example}{text[:3_990]}" for example in range(9)]}
    calls = [{"tool": "shop.disk", "arguments": {"path": text[:19_990]}}]
    return json.dumps({**_SKILL, **texts, "calls": calls}).encode() + b"\n"


async def _stall(platform: Platform, session: aiohttp.ClientSession, method: str, path: str, body: bytes) -> float:
    """Return the milliseconds of the slowest light request while a body is sent: in the best of three for the slow.

    `TURN` in the body is the number of the time, so that what it says is new each time.
    """

    async def send(turn: int) -> None:
        lines = "application/jsonl" if path.endswith("/import") else "application/json"
        async with session.request(
            method, path, data=body.replace(b"TURN", b"%d" % turn), headers={"content-type": lines}
        ) as response:
            if response.status in (401, 429, 500):
                raise RuntimeError(f"nothing to measure, {method} {path} failed: {await response.text()}")
            await response.read()

    stall = await _slowest(platform, asyncio.create_task(send(0)))
    for turn in (1, 2) if stall > _SLOW else ():  # on a machine with other work, some are the machine's
        stall = min(stall, await _slowest(platform, asyncio.create_task(send(turn))))
    return stall


async def _slowest(platform: Platform, meanwhile: asyncio.Task[None]) -> float:
    slowest = 0.0
    while not meanwhile.done():
        slowest = max(slowest, await platform.health())
    await meanwhile
    return slowest
