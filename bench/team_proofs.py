"""Whether teams that are called proven have the servers that their goals need: no model.

40 written goals, each with the servers that it needs and two cases of its caller (a request, and a text that a right
answer contains), are built by `offline:rules` among the 866 public servers of Toucan, over HTTP, as anybody would.
`python -m bench.team_proofs PORT` is the server that all of them are: under each address it lists the tools of another
one. Of a real server only names and descriptions are known, so every tool takes any arguments. Tools whose names begin
with a verb of reading are configured as `read`, as an operator would; the others are answered by the trial's recorder.

A stand-in doesn't know what it is asked. It answers with the texts of both cases if its server is any of those that the
goal needs, and else with what it is. So where a team that lacks one of two needed servers calls the other one, no text
betrays it, and only the rule that each part of a goal is tried keeps it from being proven. It doesn't show how well
servers answer, nor what a model understands or judges: requests in ordinary words are mostly more than the rules
understand, their cases fail then, and where both figures are 0 they show no more than that.
"""

import contextlib
import re
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import orjson
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.types import TextContent, Tool
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route

from bench.figures import Figure
from bench.harness import BenchSetup
from bench.labelled_texts import WrittenGoal, public_server_rows, written_goals
from bench.line_process import python, running
from bench.platform_process import admin_session, answered, free_port, up
from bench.prompt_length import tools_of

NAMES: Final = ("architect.proven_wrong", "architect.proven_right")
_READS: Final = re.compile(
    r"(?i)(?:check|count|describe|fetch|find|get|list|look|query|read|search|show|view)(?![a-z])|.*[a-z](?=Get|List)"
)


@dataclass(frozen=True, slots=True)
class _Built:
    """What a goal came to: the state of its version, empty where none was stored, and the rows of its servers."""

    state: str
    servers: frozenset[str]

    def has_all(self, goal: WrittenGoal) -> bool:
        return all(self.servers & group for group in goal.needs)


async def measure(setup: BenchSetup) -> list[Figure]:
    """Build a team for each goal, one after another, without activating it."""
    goals, rows = written_goals(), public_server_rows()
    setup.say(f"{len(goals)} written goals among {len(rows)} servers")
    place = setup.place("proofs", STARLING_MODEL="offline:rules")
    names = {_name(row, number): row["server"] for number, row in enumerate(rows)}
    async with _stand_ins() as url:
        servers = {
            name: _configured(url, number, row) for number, (name, row) in enumerate(zip(names, rows, strict=True))
        }
        (place.folder / "mcp.json").write_bytes(orjson.dumps({"mcpServers": servers}))
        async with up(place) as (platform, _), admin_session(platform, place) as api:
            built = [await _build(api, url, goal, names) for goal in goals]
    proven = [(one, goal) for one, goal in zip(built, goals, strict=True) if one.state == "proven"]
    stored = [(one, goal) for one, goal in zip(built, goals, strict=True) if one.state]
    right, all_right = (sum(one.has_all(goal) for one, goal in some) for some in (proven, stored))
    lacking = "teams that were built and lack one"
    return [
        Figure("architect.proven_wrong", len(proven) - right, "", len(stored) - all_right, lacking),
        Figure("architect.proven_right", right, "", all_right, "teams that were built with all servers"),
    ]


async def _build(api: aiohttp.ClientSession, url: str, goal: WrittenGoal, names: Mapping[str, str]) -> _Built:
    """Build a team for a goal; none where a case is refused, as a text of one digit is. Raises RuntimeError."""
    needed = [number for number, server in enumerate(names.values()) if any(server in group for group in goal.needs)]
    async with api.post(f"{url}/answers", json={"servers": needed, "text": "\n".join(text for _, text in goal.cases)}):
        pass
    said = {"id": "said", "kind": "text_contains", "text": "It has what a right answer has."}
    cases = [{"input": request, "criteria": [{**said, "value": text}]} for request, text in goal.cases]
    state, servers = "", frozenset[str]()
    async with api.post("/v1/teams", json={"goal": goal.text, "cases": cases, "activate": False}) as response:
        if response.status == 422:
            return _Built("", frozenset())
        if response.status >= 300:
            raise RuntimeError(f"{goal.text!r} was refused: {await response.text()}")
        run_id = (await response.json())["run_id"]
    async with api.get(f"/v1/runs/{run_id}/events") as response:
        async for line in response.content:
            event: dict[str, Any] = orjson.loads(line[6:]) if line.startswith(b"data: ") else {}
            if event.get("type") == "clarification":
                break  # the goal was not understood; nobody answers
            if event.get("type") == "design":
                servers = frozenset(names[one["server"]] for one in event["members"] if one.get("server"))
            state = event["state"] if event.get("type") == "published" else state
    return _Built(state, servers)


def _name(row: Mapping[str, Any], number: int) -> str:
    return f"{re.sub(r'[^a-z0-9]+', '-', row['server'].casefold())[:40].strip('-')}-{number}"


def _configured(url: str, number: int, row: Mapping[str, Any]) -> Mapping[str, Any]:
    tools = {tool.name: {"effect": "read"} for tool in tools_of(row) if _READS.match(tool.name)}
    return {
        "url": f"{url}/mcp?n={number}",
        "x-starling": {"description": row["description"], "effect": "idempotent", "tools": tools},
    }


@asynccontextmanager
async def _stand_ins() -> AsyncGenerator[str]:
    """Run the server that all are; give its address."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    async with running(python("-m", "bench.team_proofs", str(port))) as process, aiohttp.ClientSession() as session:
        await answered(session, f"{url}/ready", process)
        yield url


def _serve(port: int) -> None:
    rows: Sequence[Mapping[str, Any]] = public_server_rows()
    known: dict[str, Any] = {"servers": [], "text": ""}
    server: Server[Any, Request] = Server("public")

    def number() -> int:
        request = server.request_context.request
        assert request is not None
        return int(request.query_params["n"])

    @server.list_tools()
    async def listed() -> list[Tool]:
        return tools_of(rows[number()])

    @server.call_tool(validate_input=False)
    async def called(_: str, __: Mapping[str, Any]) -> list[TextContent]:
        own = number()
        text = known["text"] if own in known["servers"] else f"This is {rows[own]['server']}. There is nothing else."
        return [TextContent(type="text", text=text)]

    async def ready(_: Request) -> Response:
        return PlainTextResponse("ready")

    async def answers(request: Request) -> Response:
        known.update(await request.json())
        return PlainTextResponse("known")

    sessions = StreamableHTTPSessionManager(server, json_response=True, stateless=True)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        async with sessions.run():
            yield

    routes = [
        Route("/ready", ready),
        Route("/answers", answers, methods=["POST"]),
        Mount("/mcp", sessions.handle_request),
    ]
    uvicorn.run(Starlette(routes=routes, lifespan=lifespan), port=port, log_level="error")


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
