"""What 300 registered servers cost: the start once they are listed, the memory, a reload.

`python -m bench.many_servers PORT` is the server that all of them are, under different addresses.
"""

import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter
from typing import Any

import aiohttp
import orjson
from mcp.server.fastmcp import FastMCP
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from bench.figures import Figure
from bench.harness import BenchSetup
from bench.line_process import python, running
from bench.platform_process import Place, Platform, admin_session, answered, free_port, up

NAMES = ("up.ready_ms_300", "up.memory_mb_300", "registry.reload_ms_300")
SERVERS = 300
_REPETITIONS = 3


async def measure(setup: BenchSetup) -> list[Figure]:
    """Measure a platform with 300 servers next to the same platform with one of them."""
    setup.say(f"{SERVERS} servers")
    place = setup.place("many")
    async with _server() as url:
        few = await _measured(place, url, 1)
        many = await _measured(place, url, SERVERS)
    return [
        Figure("up.ready_ms_300", many.ready, "ms", few.ready, "with one server; listed already"),
        Figure("up.memory_mb_300", many.memory, "MB", few.memory, "with one server"),
        Figure("registry.reload_ms_300", many.reload, "ms", few.reload, "with one server; one of them changed"),
    ]


@dataclass(frozen=True, slots=True)
class _Measured:
    ready: float
    memory: float
    reload: float


async def _measured(place: Place, url: str, count: int) -> _Measured:
    folder = place.folder / f"servers-{count}"
    folder.mkdir(mode=0o711)
    own = replace(place, folder=folder)
    (folder / "mcp.json").write_bytes(orjson.dumps(_document(url, count)))
    async with up(own):
        pass  # lists them
    ready, memory, reloads = list[float](), list[float](), list[float]()
    for _ in range(_REPETITIONS):
        async with up(own) as (platform, milliseconds):
            ready.append(milliseconds)
            memory.append(platform.memory())
            reloads += [await _reload(own, platform, url, count, turn) for turn in range(_REPETITIONS)]
        (folder / "mcp.json").write_bytes(orjson.dumps(_document(url, count, _REPETITIONS - 1)))
    return _Measured(median(ready), max(memory), median(reloads))


async def _reload(place: Place, platform: Platform, url: str, count: int, turn: int) -> float:
    """Return the milliseconds of a reload that changes one server."""
    begun = perf_counter()
    document = _document(url, count, turn)
    async with (
        admin_session(platform, place) as session,
        session.post("/v1/registry/reload", json=document) as response,
    ):
        if response.status != 200:
            raise RuntimeError(f"the reload was refused: {await response.text()}")
    return (perf_counter() - begun) * 1000


def _document(url: str, count: int, turn: int = -1) -> Mapping[str, Any]:
    servers: dict[str, Any] = {f"many{number}": {"url": f"{url}?n={number}"} for number in range(count)}
    servers["many0"]["url"] += f"&turn={turn}"
    return {"mcpServers": servers}


@asynccontextmanager
async def _server() -> AsyncGenerator[str]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    async with running(python("-m", "bench.many_servers", str(port))) as process, aiohttp.ClientSession() as session:
        await answered(session, f"{url}/ready", process)
        yield f"{url}/mcp"


def _serve(port: int) -> None:
    server = FastMCP("many", instructions="One of many.", log_level="ERROR", port=port, stateless_http=True)
    for name in ("find", "read", "write", "list", "describe"):
        server.add_tool(_tool, name=name, description=f"{name.title()} things in one of many catalogues.")

    server.custom_route("/ready", methods=["GET"])(_ready)
    server.run("streamable-http")


async def _ready(_: Request) -> Response:
    return PlainTextResponse("ready")


async def _tool(text: str, limit: int = 10) -> str:
    return f"{limit} of {text}"


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
