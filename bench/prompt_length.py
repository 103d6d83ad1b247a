"""The length of all prompts of a run of two specialists, alone and among hundreds of other servers.

`python -m bench.prompt_length PORT` is the server that all others are: under each address it lists the tools of
another server of the labelled texts.
"""

import contextlib
import re
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.types import Tool
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route

from bench import figures
from bench.figures import Figure
from bench.harness import BenchSetup
from bench.labelled_texts import server_rows
from bench.line_process import python, running
from bench.platform_process import Place, answered, free_port, up

NAMES = ("run.prompt_chars", "run.prompt_chars_300", "run.prompt_chars_1600")
_SERVERS = (300, 1_600)  # the two that are used among them


async def measure(setup: BenchSetup) -> list[Figure]:
    """Measure the run with the two servers that it needs, then with others beside them."""
    setup.say("The prompts of one run")
    alone = await recorded(setup, setup.place("prompts"))
    chars, payload = (sum(map(size, alone)) for size in (figures.prompt_chars, figures.payload_chars))
    measured = [Figure("run.prompt_chars", chars, "", payload, "the same without instructions")]
    async with catalogue() as url:
        for count in _SERVERS:
            setup.say(f"The same among {count:,} servers")
            place = setup.place(f"prompts-{count}")
            add_servers(place, url, count)
            among = sum(map(figures.prompt_chars, await recorded(setup, place)))
            measured.append(Figure(f"run.prompt_chars_{count}", among, "", chars, "with two servers"))
    return measured


async def recorded(setup: BenchSetup, place: Place) -> Sequence[Mapping[str, Any]]:
    """Return what the model is asked for one run."""
    async with up(place) as (platform, _):
        await setup.model.calls()
        await platform.run()
        return [call["body"] for call in await setup.model.calls()]


def add_servers(place: Place, url: str, count: int) -> None:
    """Add servers to the configured ones until there are so many."""
    file = place.folder / "mcp.json"
    servers: dict[str, Any] = orjson.loads(file.read_bytes())["mcpServers"]
    for number, row in enumerate(server_rows("stabletoolbench", count - len(servers))):
        name = re.sub(r"[^a-z0-9]+", "-", row["server"].casefold())[:40].strip("-")
        options = {"description": row["description"], "effect": "read"}
        servers[f"{name}-{number}"] = {"url": f"{url}?n={number}", "x-starling": options}
    file.write_bytes(orjson.dumps({"mcpServers": servers}))


@asynccontextmanager
async def catalogue() -> AsyncGenerator[str]:
    """Run the server that the others are; give its address."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    async with running(python("-m", "bench.prompt_length", str(port))) as process, aiohttp.ClientSession() as session:
        await answered(session, f"{url}/ready", process)
        yield f"{url}/mcp"


def _serve(port: int) -> None:
    rows = server_rows("stabletoolbench", max(_SERVERS))
    server: Server[Any, Request] = Server("catalogue")

    @server.list_tools()
    async def listed() -> list[Tool]:
        request = server.request_context.request
        assert request is not None
        return tools_of(rows[int(request.query_params["n"])])

    sessions = StreamableHTTPSessionManager(server, json_response=True, stateless=True)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        async with sessions.run():
            yield

    routes = [Route("/ready", _ready), Mount("/mcp", sessions.handle_request)]
    uvicorn.run(Starlette(routes=routes, lifespan=lifespan), port=port, log_level="error")


def tools_of(row: Mapping[str, Any]) -> list[Tool]:
    """Return the tools of a server; those under names that MCP doesn't take, or under the same name, are renamed."""
    found: dict[str, Tool] = {}
    for number, tool in enumerate(row["tools"]):
        name = re.sub(r"[^A-Za-z0-9_-]+", "_", tool["name"])[:60]
        name = f"{name}_{number}" if name in found else name
        found[name] = Tool(name=name, description=tool["description"], inputSchema={"type": "object"})
    return [*found.values()]


async def _ready(_: Request) -> Response:
    return PlainTextResponse("ready")


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
