"""An execution service as an MCP server: `GET <url>/tools` and `POST <url>/execute`, as Starling has them, too."""

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

import httpx
import mcp.types as wire
import orjson
from mcp import McpError
from mcp.server.lowlevel import Server
from pydantic import AliasChoices, BaseModel, Field, TypeAdapter, ValidationError

from mcp_gateway.configuration.servers import RemoteServer
from mcp_gateway.sessions.http_messages import ENCODINGS, read_body
from mcp_gateway.sessions.messages import IDEMPOTENCY_KEY, IN_DOUBT, LOST, UNREACHED, UNREADABLE
from starling.core.validation_errors import fault_list

_TIMEOUT: Final = httpx.Timeout(None, connect=10.0)  # answers are awaited until the call's own time limit
_HEADERS: Final = {
    "Accept": "application/json",
    "Accept-Encoding": ENCODINGS,
    "Connection": "close",  # a service may close a kept one just as a call is sent, which then is in doubt
}
_REFUSALS: Final = frozenset({400, 401, 403, 405, 413, 415, 422, 429})
_UNSENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError, httpx.UnsupportedProtocol)
_SHARE: Final = 0.9  # of a call's time limit, so that a service can still answer that it goes on
_SHOWN_CHARS: Final = 500


class _Tool(BaseModel):
    name: str
    description: str | None = None
    input_schema: dict[str, Any] = Field(
        default={"type": "object"}, validation_alias=AliasChoices("input_schema", "parameters", "inputSchema")
    )
    effect: str | None = None

    @property
    def definition(self) -> wire.Tool:
        hints = wire.ToolAnnotations(readOnlyHint=self.effect == "read")
        if self.effect == "idempotent":
            hints = wire.ToolAnnotations(readOnlyHint=False, idempotentHint=True, destructiveHint=False)
        known = hints if self.effect in ("read", "idempotent", "unsafe") else None
        return wire.Tool(name=self.name, description=self.description, inputSchema=self.input_schema, annotations=known)


class _Answer(BaseModel):
    status: Literal["success", "error", "waiting", "in_doubt"]
    output: Any = None
    run_id: str | None = None


_TOOLS: Final = TypeAdapter(list[_Tool])


@dataclass(frozen=True, slots=True)
class _ExecutionService:
    client: httpx.AsyncClient
    config: RemoteServer
    seconds: float  # of a call without a time limit of its own

    async def list_tools(self, _: wire.ListToolsRequest) -> wire.ServerResult:
        answer = await self._asked("GET", "/tools")
        try:
            listed = _TOOLS.validate_python(answer.get("tools") if isinstance(answer, dict) else answer)
        except ValidationError as error:
            raise _error(UNREADABLE, f"it is not a list of tools: {fault_list(error.errors())}") from None
        return wire.ServerResult(wire.ListToolsResult(tools=[tool.definition for tool in listed]))

    async def call_tool(self, request: wire.CallToolRequest) -> wire.ServerResult:
        name, meta = request.params.name, request.params.meta
        seconds = _SHARE * (self.config.options.timeout_of(name) or self.seconds)
        body = {"tool_name": name, "arguments": request.params.arguments or {}, "timeout": seconds}
        sent = (meta.model_extra or {}) if meta else {}
        names = {IDEMPOTENCY_KEY: "Idempotency-Key", "traceparent": "traceparent"}
        headers = {"Content-Type": "application/json"} | {
            names[name]: str(sent[name]) for name in names if sent.get(name)
        }
        answer = await self._asked("POST", "/execute", content=json.dumps(body).encode(), headers=headers)
        try:
            done = _Answer.model_validate(answer)
        except ValidationError as error:
            raise _error(UNREADABLE, f"it is not the result of a call: {fault_list(error.errors())}") from None
        if done.status in ("waiting", "in_doubt"):
            run = f" of its run {done.run_id}" if done.run_id else ""
            raise _error(IN_DOUBT, f"it answered that the call{run} is {done.status!r}")
        return wire.ServerResult(_result(done.output, is_error=done.status == "error"))

    async def _asked(self, method: str, path: str, **options: Any) -> Any:
        """Return the JSON of an answer. Raises McpError, whose code says what is known of the request."""
        try:
            async with self.client.stream(method, self.config.url.rstrip("/") + path, **options) as response:
                if not response.is_success:
                    raise await _refusal(response)
                return orjson.loads(await read_body(response))
        except ValueError as error:  # of JSON, and UnreadableError
            raise _error(UNREADABLE, f"it can't be read: {error}") from None
        except _UNSENT as error:
            raise _error(UNREACHED, f"it can't be reached ({error or type(error).__name__})") from None
        except httpx.TransportError as error:
            raise _error(LOST, f"the connection to it was lost ({type(error).__name__})") from None


@asynccontextmanager
async def open_execution_service(
    config: RemoteServer, seconds: float, client: Callable[..., httpx.AsyncClient]
) -> AsyncGenerator[Server[Any, Any]]:
    """Yield a server that asks the service for its tools and calls them there, once each, `seconds` by default."""
    async with client(headers={**_HEADERS, **config.headers}, timeout=_TIMEOUT) as opened:
        service = _ExecutionService(opened, config, seconds)
        server: Server[Any, Any] = Server("Execution service", version="1")
        server.request_handlers[wire.ListToolsRequest] = service.list_tools
        server.request_handlers[wire.CallToolRequest] = service.call_tool
        yield server


async def _refusal(response: httpx.Response) -> McpError:
    status, said = response.status_code, b""
    with suppress(httpx.HTTPError):
        said = await read_body(response, whole=False)
    text = " ".join(said.decode(errors="replace").split())[:_SHOWN_CHARS]
    if status == 404:
        code = wire.METHOD_NOT_FOUND
    elif status in _REFUSALS:
        code = wire.INVALID_PARAMS
    else:
        code = LOST if response.is_server_error else IN_DOUBT
    return _error(code, f"it answered with HTTP {status}{': ' if text else ''}{text}")


def _error(code: int, message: str) -> McpError:
    return McpError(wire.ErrorData(code=code, message=message))


def _result(output: Any, *, is_error: bool) -> wire.CallToolResult:
    """Return the output as an MCP result: objects as structured content, all else as text."""
    if isinstance(output, dict) and not is_error:
        return wire.CallToolResult(content=[], structuredContent=cast("dict[str, Any]", output))
    text = output if isinstance(output, str) else orjson.dumps(output).decode() if output is not None else ""
    content: list[wire.ContentBlock] = [wire.TextContent(type="text", text=text)] if text else []
    return wire.CallToolResult(content=content, isError=is_error)
