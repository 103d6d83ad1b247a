"""The whole path of a call with a scripted server at its end, for unit tests of its stages."""

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from mcp.types import CallToolResult, TextContent

from mcp_gateway.configuration.servers import server_of
from mcp_gateway.connections import build_path
from mcp_gateway.gateway import GatewayParts
from mcp_gateway.path.result_cache import ResultCache
from mcp_gateway.registration.known_servers import Directory, KnownServer
from mcp_gateway.registration.live_check import LiveCheck, LiveTools
from mcp_gateway.sessions.breakers import ServerBreakers
from mcp_gateway.sessions.large_messages import LOOP_BYTES, LargeResult
from mcp_gateway.sessions.pool import SessionPool
from starling.core.artifacts import ArtifactStore
from starling.core.clock import Deadline, SystemClock
from starling.core.settings.schema import Limits
from starling.core.tool_calls import Effect
from starling.core.tools import CallRecord, ServerListing, ToolCall, ToolDefinition, ToolOutcome
from starling.infra.postgres.runs.call_claims import CallClaims, CallPlace, EarlierCall
from tests.support.absent_services import DISABLED_ARTIFACT_STORE, NO_HALTS

ANY_SCHEMA: dict[str, Any] = {"type": "object"}


def answer(data: dict[str, Any] | None = None, text: str = "", *, error: bool = False) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], structuredContent=data, isError=error)


def large_answer(**data: Any) -> LargeResult:
    """Return a result whose structured content is too large to be handled as data."""
    content = json.dumps({**data, "rows": "x" * LOOP_BYTES}).encode()
    return LargeResult("", content, is_error=False)


type Result = CallToolResult | LargeResult
type Script = Callable[[str, dict[str, Any]], Result]


def always(result: Result) -> Script:
    """Answer every call with this."""
    return lambda _tool, _arguments: result


@dataclass
class ScriptedServer:
    """Answers calls with what `script` returns or raises, and keeps them with their `_meta`."""

    script: Script = lambda tool, arguments: answer({"n": 1}, f"{tool} is done")
    calls: list[tuple[str, dict[str, Any], Mapping[str, str]]] = field(
        default_factory=list[tuple[str, dict[str, Any], Mapping[str, str]]]
    )

    async def opened(self) -> None:
        pass

    async def call(self, call: ToolCall, arguments: dict[str, Any], meta: Mapping[str, str]) -> Result:
        tool = call.tool.own_name or call.tool.name
        self.calls.append((tool, arguments, dict(meta)))
        return self.script(tool, arguments)

    @asynccontextmanager
    async def use(self, *_: object) -> "AsyncGenerator[ScriptedServer]":
        yield self


@dataclass
class UnchangedTools:
    """What is offered on a session is what was approved."""

    relist: Callable[[str], None]

    async def tools(self, _: object, server: KnownServer) -> LiveTools:
        return LiveTools(server.tools)


@dataclass
class ScriptedClaims(CallClaims):
    """Says what came before a call, and keeps the keys that were asked for."""

    earlier: EarlierCall | None = None
    asked: list[tuple[CallPlace, str, float]] = field(default_factory=list[tuple[CallPlace, str, float]])

    async def claim(self, call: CallPlace, key: str, seconds: float) -> EarlierCall | None:
        self.asked.append((call, key, seconds))
        return self.earlier


@dataclass
class ScriptedPath:
    """The path to the tools `find`, `order` and `put` of the server `shop`, whose options are `options`."""

    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    output: dict[str, Any] | None = None  # the server's own output schema
    now: float = 0.0  # of the cache's clock
    server: ScriptedServer = field(default_factory=ScriptedServer)
    claims: ScriptedClaims = field(default_factory=ScriptedClaims)
    artifacts: ArtifactStore = DISABLED_ARTIFACT_STORE
    relisted: list[str] = field(default_factory=list[str])
    breakers: ServerBreakers = field(default_factory=ServerBreakers)
    announced: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def __post_init__(self) -> None:
        self.cache = ResultCache(lambda: self.now)
        self.directory = Directory()
        self.configure(self.options)
        stored = cast("Any", SimpleNamespace(claims=self.claims))
        given = stored, stored, Limits(), dict[str, str](), NO_HALTS, self.artifacts, self.directory
        parts = GatewayParts(*given, breakers=self.breakers, cache=self.cache)
        sessions, live = cast("SessionPool", self.server), cast("LiveCheck", UnchangedTools(self.relisted.append))
        self.path = build_path(parts, sessions, live, self._invalidate)

    def configure(self, options: Mapping[str, Any]) -> None:
        """Make these the options of the server."""
        self.config = server_of({"command": "shop", "x-starling": options})
        self.list_tools(*(self.tool(name) for name in ("find", "order", "put")))

    def list_tools(self, *tools: ToolDefinition) -> None:
        """Make these the tools of the server."""
        self.directory.replace({"shop": self.config}, [ServerListing("shop", "", self.config.hash, "ready", tools)])

    def tool(self, name: str, effect: Effect | None = None) -> ToolDefinition:
        effect = effect or self.config.options.effect_of(name)
        return ToolDefinition("shop", name, "", ANY_SCHEMA, self.output, effect, f"hash of {name}")

    def call(self, name: str, effect: Effect | None = None, /, **fields: Any) -> ToolCall:
        values: dict[str, Any] = {"arguments": {"id": 1}, "thread_id": "thread", "position": 0} | fields
        return ToolCall("t1.0.0", "run", "t1", self.tool(name, effect), **values)

    async def made(self, call: ToolCall, record: CallRecord | None = None) -> ToolOutcome:
        return await self.path(call, Deadline(SystemClock(), 10), record)

    @property
    def called(self) -> list[str]:
        return [name for name, _, _ in self.server.calls]

    async def _invalidate(self, tenant: str, tool: str) -> None:
        self.cache.invalidate(tenant, tool)
        self.announced.append((tenant, tool))
