"""The bare loop that the platform is measured against: `python -m bench.bare_loop <folder> <model URL>`.

It asks the same model the same requests through the same client, and calls the same tools on the same kind of open
sessions: plan, two tasks with their calls and reviews side by side, final answer. There is nothing else: no graph, no
HTTP, no database. Each line that it reads is how many requests to do and how many of them at once.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import orjson

from mcp_gateway.configuration.servers import McpConfig, read_config
from mcp_gateway.sessions.checked_connections import CheckedConnections
from mcp_gateway.sessions.pool import SessionPool
from starling.core.llm import Message, ModelClient, ModelReply, ModelRequest, ModelRole, ResponseSchema, ToolSpec
from starling.core.settings.loading import load_settings
from starling.core.settings.schema import Limits, environment
from starling.core.tool_calls import Effect
from starling.core.tools import ToolCall, ToolDefinition
from starling.infra.llm.factory import open_models

SERVER_OF = {"tide_level": "tides", "find_shelf": "library"}


@dataclass(frozen=True, slots=True)
class Requests:
    """What the platform asked the model for one request, in the order in which a loop needs it."""

    plan: ModelRequest
    tasks: tuple[ModelRequest, ...]
    reviews: tuple[ModelRequest, ...]
    answer: ModelRequest

    @classmethod
    def of(cls, bodies: Sequence[Mapping[str, Any]]) -> "Requests":
        """Sort the recorded requests: the plan is the first, the answer the one that streams."""
        plan, *others = bodies
        return cls(
            plan=_request(plan),
            tasks=tuple(_request(body) for body in others if "tools" in body),
            reviews=tuple(_request(body) for body in others if "response_format" in body),
            answer=next(_request(body) for body in others if body.get("stream")),
        )


def _request(body: Mapping[str, Any]) -> ModelRequest:
    schema = body.get("response_format", {}).get("json_schema")
    return ModelRequest(
        role=ModelRole.REASONING,
        messages=tuple(Message(said["role"], said["content"]) for said in body["messages"]),
        tools=tuple(ToolSpec(**tool["function"]) for tool in body.get("tools", ())),
        response=ResponseSchema(schema["name"], schema["schema"]) if schema else None,
        temperature=body.get("temperature", 0.0),
        max_tokens=body.get("max_tokens") or body.get("max_completion_tokens"),
    )


type RunStream = Callable[[str, ModelReply], Awaitable[None]]


async def nobody(what: str, reply: ModelReply) -> None:
    """Tell nobody."""


@dataclass(frozen=True, slots=True)
class Loop:
    """Does one request after another, or several at once."""

    models: ModelClient
    sessions: SessionPool
    servers: McpConfig
    requests: Requests

    async def do(self, requests: int, at_once: int) -> dict[str, Any]:
        """Return the processor time in all, the time in all, and the times of each, in milliseconds."""
        begun, used = perf_counter(), process_time()
        lanes = await asyncio.gather(*(self._lane(requests // at_once) for _ in range(at_once)))
        times = [time for lane in lanes for time in lane]
        return {
            "cpu": (process_time() - used) * 1000,
            "elapsed": (perf_counter() - begun) * 1000,
            "plan": [plan for plan, _ in times],
            "done": [done for _, done in times],
        }

    async def _lane(self, requests: int) -> list[tuple[float, float]]:
        return [await self.one() for _ in range(requests)]

    async def one(self, told: RunStream = nobody) -> tuple[float, float]:
        """Do one request, telling each answer; returns the milliseconds to the plan and to the end."""
        begun = perf_counter()
        await told("plan", await self.models.respond(self.requests.plan))
        planned = perf_counter()
        await asyncio.gather(
            *(self._task(*pair, told) for pair in zip(self.requests.tasks, self.requests.reviews, strict=True))
        )
        async for item in self.models.stream_respond(self.requests.answer):
            if isinstance(item, ModelReply):
                await told("done", item)
        return (planned - begun) * 1000, (perf_counter() - begun) * 1000

    async def _task(self, task: ModelRequest, review: ModelRequest, told: RunStream) -> None:
        reply = await self.models.respond(task)
        await told("task", reply)
        assert reply.tool_calls, "the model answered another request than the platform's"
        for call in reply.tool_calls:
            server = SERVER_OF[call.name]
            async with self.sessions.use(server, self.servers[server]) as session:
                arguments = dict(call.arguments or {})
                tool = ToolDefinition(server, call.name, "", {}, None, Effect.READ, "")
                await session.call(ToolCall("", "", "", tool, arguments), arguments, {})
        await told("review", await self.models.respond(review))


@asynccontextmanager
async def open_loop(folder: Path) -> AsyncGenerator[Loop]:
    """Open the models and sessions of the loop."""
    requests = Requests.of(orjson.loads((folder / "requests.json").read_bytes()))
    async with (
        open_models(load_settings({}, "starling.yaml")) as models,
        SessionPool(Limits(), environment(), CheckedConnections()) as sessions,
    ):
        yield Loop(models, sessions, read_config(folder / "mcp.json"), requests)


async def _answer_lines(folder: Path) -> None:
    async with open_loop(folder) as loop:
        while line := await asyncio.to_thread(sys.stdin.readline):
            print(orjson.dumps(await loop.do(*map(int, line.split()))).decode(), flush=True)


if __name__ == "__main__":
    asyncio.run(_answer_lines(Path(sys.argv[1])))
