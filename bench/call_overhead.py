"""What the path of a tool call costs, next to the bare MCP client on the same server and commits in the same Postgres.

`python -m bench.call_overhead URL` measures in a process of its own, on an empty database, and prints JSON: the median
milliseconds of each kind.
"""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import count
from statistics import median
from time import perf_counter
from typing import Final

import psycopg
from mcp import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client

from bench.figures import Figure
from bench.harness import BenchSetup
from bench.line_process import HERE, line_of, python, running
from bench.platform_process import admin_session, up
from brain.durability.ledger import Ledger
from brain.interrupts.requests import Interrupts
from mcp_gateway.configuration.servers import server_of
from mcp_gateway.connections import connect
from mcp_gateway.registration.repository import ServerRepository
from starling.app.cli.process_setup import freeze_startup_objects
from starling.app.telemetry.instrumentation import MeasuredTools
from starling.app.telemetry.metrics import Metrics
from starling.core.clock import Deadline, SystemClock
from starling.core.ids import new_id
from starling.core.settings.schema import Limits
from starling.core.tools import ToolCall, ToolDefinition, ToolGateway
from starling.infra.postgres.embedded.server import EmbeddedPostgres
from starling.infra.postgres.engine import Engine, open_engine
from starling.infra.postgres.runs.acceptance import RunRepository
from starling.infra.postgres.runs.broadcast import Broadcast
from starling.infra.postgres.runs.leases import Leases
from starling.infra.postgres.runs.writer import RunWriter
from starling.infra.postgres.schema import upgrade
from tests.support.absent_services import open_gateway
from tests.support.run_factories import claimed, defer_nothing, new_run

NAMES: Final = ("gateway.call_ms", "gateway.read_call_ms", "execute.read_ms")
_WARM_UP, _CALLS = 100, 500
_SERVER: Final = (sys.executable, str(HERE / "benchmark_tools.py"), "tides")
_TOOL: Final = "tide_level"
_SECRETS: Final = {name: f"{name}-{'x' * 32}" for name in ("database_url", "token", "openai_api_key", "langfuse")}
_COMMIT: Final = "UPDATE measured SET number = number + 1"

type Act = Callable[[Mapping[str, str]], Awaitable[object]]


async def measure(setup: BenchSetup) -> list[Figure]:
    """Measure calls that read, and calls that may change something, which make two commits."""
    setup.say("The path of a tool call")
    folder = setup.folder / "calls"
    folder.mkdir(mode=0o711)
    with EmbeddedPostgres(folder) as server:
        async with running(python("-m", "bench.call_overhead", server.url)) as process:
            found: dict[str, float] = json.loads(await line_of(process))
    executed = await _executed(setup)
    bare, commit = found["bare"], found["commit"]
    against = f"the bare client's call, {bare:.2f} ms, and two commits of {commit:.2f} ms"
    return [
        Figure(NAMES[0], found["change"], "ms", bare + 2 * commit, against),
        Figure(NAMES[1], found["read"], "ms", bare, "the bare client's call"),
        Figure(NAMES[2], executed, "ms", found["read"], "the path of such a call alone"),
    ]


async def _executed(setup: BenchSetup) -> float:
    """Return the milliseconds of a call of the same tool over HTTP, by a process of `starling up`, median."""
    place, times = setup.place("execute"), list[float]()
    async with up(place) as (platform, _), admin_session(platform, place) as api:
        for number in range(_WARM_UP + _CALLS):
            begun = perf_counter()
            body = {"tool_name": f"tides.{_TOOL}", "arguments": {"harbour": f"Callao {number}"}}
            async with api.post("/execute", json=body) as response:
                made = await response.json()
            if made.get("status") != "success" or made["run_id"]:
                raise RuntimeError(f"the call was no read by an open session: {made}")
            times.append((perf_counter() - begun) * 1_000)
    return median(times[_WARM_UP:])


async def _measured(url: str) -> dict[str, float]:
    await upgrade(url)
    async with AsyncExitStack() as stack:
        engine = open_engine(url)
        stack.push_async_callback(engine.dispose)
        path = await stack.enter_async_context(_path(engine))
        acts: dict[str, Act] = {
            "bare": await stack.enter_async_context(_bare()),
            "commit": await stack.enter_async_context(_commits(url)),
            "read": path.read,
            "change": path.change,
        }
        await _in_turns(acts, _WARM_UP)
        freeze_startup_objects()  # as workers do
        times = await _in_turns(acts, _CALLS)
    return {kind: median(found) * 1_000 for kind, found in times.items()}


async def _in_turns(acts: Mapping[str, Act], rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each act, by kind; no two have the same arguments."""
    times: dict[str, list[float]] = {kind: [] for kind in acts}
    for _ in range(rounds):
        for kind, act in acts.items():
            arguments = {"harbour": f"Callao {next(_NUMBERS)}"}
            begun = perf_counter()
            await act(arguments)
            times[kind].append(perf_counter() - begun)
    return times


_NUMBERS = count(1)


@asynccontextmanager
async def _bare() -> AsyncGenerator[Act]:
    """Yield a call with the client of MCP's SDK."""
    parameters = StdioServerParameters(command=_SERVER[0], args=list(_SERVER[1:]))
    async with stdio_client(parameters) as streams, ClientSession(*streams) as session:
        await session.initialize()
        await session.list_tools()  # as each client does that checks results by their schemas

        async def call(arguments: Mapping[str, str]) -> None:
            result = await session.call_tool(_TOOL, dict(arguments))
            if result.isError:
                raise RuntimeError(f"the bare call failed: {result.content}")

        yield call


@asynccontextmanager
async def _commits(url: str) -> AsyncGenerator[Act]:
    """Yield a commit of one changed row."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True, prepare_threshold=1) as connection:
        await connection.execute("CREATE TABLE measured AS SELECT 0 AS number")

        async def commit(_: Mapping[str, str]) -> None:
            await connection.execute(_COMMIT)

        yield commit


@dataclass(frozen=True, slots=True)
class _Path:
    """The whole path of calls of one run, as its agents take it."""

    gateway: ToolGateway
    tools: Mapping[str, ToolDefinition]  # by effect
    writer: RunWriter
    ledger: Ledger

    async def read(self, arguments: Mapping[str, str]) -> None:
        await self._made(self._call("read", arguments))

    async def change(self, arguments: Mapping[str, str]) -> None:
        call = self.ledger.with_keys(self._call("unsafe", arguments))
        self.ledger.intend([call])
        await self._made(call)
        await self.writer.flush()  # durable before its result is used

    def _call(self, effect: str, arguments: Mapping[str, str]) -> ToolCall:
        run = self.writer.run.id
        return ToolCall(new_id(), run, "t1", self.tools[effect], dict(arguments), index=next(_NUMBERS))

    async def _made(self, call: ToolCall) -> None:
        outcome = await self.gateway.call(call, Deadline(SystemClock(), 60), self.ledger)
        if outcome.status != "succeeded":
            raise RuntimeError(f"the call failed: {outcome.text}")


@asynccontextmanager
async def _path(engine: Engine) -> AsyncGenerator[_Path]:
    limits, clock = Limits(), SystemClock()
    runs = RunRepository(engine, defer_nothing, cap=8)
    new = new_run()
    await runs.accept(new)
    writer = RunWriter(
        engine, await claimed(Leases(engine, defer_nothing, runs.admit, graph_version=1), new.key), Broadcast()
    )
    ledger = Ledger(writer, Interrupts(writer, clock, 60), clock, limits.lease_seconds / 3)
    configs = {
        effect: server_of({"command": _SERVER[0], "args": list(_SERVER[1:]), "x-starling": {"effect": effect}})
        for effect in ("read", "unsafe")
    }
    async with open_gateway(ServerRepository(engine), connect, limits, {}, secrets=_SECRETS) as gateway:
        tools = {listing.name: listing.tools[0] for listing in await gateway.catalog.sync(configs)}
        yield _Path(MeasuredTools(gateway, Metrics()), tools, writer, ledger)
    await writer.close()


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        print(json.dumps(asyncio.run(_measured(sys.argv[1]))), flush=True)
