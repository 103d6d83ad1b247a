"""The last stage of a call's path: the call itself, on an open session."""

from dataclasses import dataclass
from typing import Final

from mcp import McpError
from mcp.types import INVALID_PARAMS, METHOD_NOT_FOUND, CallToolResult
from pydantic import ValidationError

from mcp_gateway.path.checks.kill_switch import switched_off
from mcp_gateway.path.results.result_content import data_of, resource_links, text_of
from mcp_gateway.path.stage import failed, not_sent, quarantined
from mcp_gateway.registration.known_servers import Directory
from mcp_gateway.registration.live_check import LiveCheck
from mcp_gateway.schemas.large_values import large_value_faults
from mcp_gateway.schemas.validation import Validators, faults
from mcp_gateway.sessions.large_messages import LargeResult
from mcp_gateway.sessions.messages import UNREADABLE
from mcp_gateway.sessions.pool import SessionPool
from mcp_gateway.sessions.session import SessionForgottenError
from starling.core.clock import Deadline
from starling.core.errors import ServerUnavailableError
from starling.core.json import JsonObject, storable_text
from starling.core.tool_calls import Effect, Observation
from starling.core.tools import CallRecord, Halts, ToolCall, ToolOutcome

IDEMPOTENCY_KEY: Final = "starling/idempotency-key"  # in `_meta` of a request
_REJECTIONS: Final = {INVALID_PARAMS: "invalid_arguments", METHOD_NOT_FOUND: "removed"}


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Calls the tool once, and turns what comes back into an outcome."""

    directory: Directory
    sessions: SessionPool
    validators: Validators
    halts: Halts
    live: LiveCheck

    async def __call__(self, call: ToolCall, deadline: Deadline, record: CallRecord | None) -> ToolOutcome:
        server = self.directory.server(call.tool.server)
        if server is None:  # removed since it was checked
            return not_sent("removed", f"The server {call.tool.server} was removed.")
        opened = False
        try:
            async with self.sessions.use(call.tool.server, server.config) as session:
                await session.opened()
                live = await self.live.tools(session, server)
                opened = True
                if refusal := live.refusal(call.tool.server, call.tool.name, call.tool.hash):
                    return quarantined(call, refusal)
                if (stopped := switched_off(self.halts, call)) is not None:  # while the server started
                    return stopped
                if record is not None and call.tool.effect is not Effect.READ:
                    await record.leave(call)
                result = await session.call(call, dict(call.arguments), _meta(call))
        except ServerUnavailableError as error:
            return self._unavailable(call, error, sent=opened and not isinstance(error, SessionForgottenError))
        except McpError as error:
            return _error(call, error)
        except ValidationError:
            text = f"The answer of {call.tool.full_name} is not an MCP result."
            return failed(call, Observation.INVALID_RESULT, "invalid_result", text)
        return await self._answered(call, result)

    def _unavailable(self, call: ToolCall, error: ServerUnavailableError, *, sent: bool) -> ToolOutcome:
        code, text = error.code, storable_text(str(error))
        if self.directory.server(call.tool.server) is None:
            code, text = "removed", f"The server {call.tool.server} was removed while it was called."
        return failed(call, Observation.CONNECTION_LOST, code, text) if sent else not_sent(code, text)

    async def _answered(self, call: ToolCall, result: CallToolResult | LargeResult) -> ToolOutcome:
        if isinstance(result, LargeResult):
            data, text, is_error = result.small_data, result.text, result.is_error
        else:
            data = data_of(result)
            text, is_error = text_of(result, data), result.isError
        if is_error:
            text = text or f"{call.tool.full_name} failed without a message."
            return failed(call, Observation.TOOL_ERROR, "tool_error", text)
        large = result.data if isinstance(result, LargeResult) and data is None else b""
        if violations := await self._violations(call, data, large):
            text = f"The result of {call.tool.full_name} violates its output schema: {violations}."
            return failed(call, Observation.INVALID_RESULT, "invalid_result", text)
        links = () if isinstance(result, LargeResult) else resource_links(result)
        return ToolOutcome(Observation.COMPLETED, text, data, resources=links, large_data=large)

    async def _violations(self, call: ToolCall, data: JsonObject | None, large: bytes) -> str:
        if call.tool.output_schema is None:
            return ""
        if data is None and large:
            return "; ".join(await large_value_faults(call.tool.output_schema, large, "result"))
        if data is None:
            return "there is no structured content"
        schema = await self.validators.load(call.tool.schemas_key, "output", call.tool.output_schema)
        return "; ".join(faults(schema, data, "result"))


def _meta(call: ToolCall) -> dict[str, str]:
    """Return what is sent beside the arguments, also the key by which the server recognizes a repetition."""
    effectful = call.idempotency_key and call.tool.effect is not Effect.READ
    return {**call.meta, IDEMPOTENCY_KEY: call.idempotency_key} if effectful else dict(call.meta)


def _error(call: ToolCall, error: McpError) -> ToolOutcome:
    message = storable_text(error.error.message)
    if error.error.code == UNREADABLE:
        text = f"The answer of {call.tool.full_name} is unreadable: {message}."
        return failed(call, Observation.INVALID_RESULT, "invalid_result", text)
    if code := _REJECTIONS.get(error.error.code):
        return failed(call, Observation.REJECTED, code, f"{call.tool.server} rejected the call: {message}")
    text = f"{call.tool.server} answered the call with error {error.error.code}: {message}."
    return failed(call, Observation.INTERNAL_ERROR, "tool_error", text)
