"""The end of the path: the call itself, on an open session."""

from dataclasses import dataclass
from typing import Any, Final, cast

from mcp import McpError
from mcp.types import INVALID_PARAMS, METHOD_NOT_FOUND, CallToolResult
from pydantic import ValidationError

from mcp_gateway.directory import Directory
from mcp_gateway.path.kill_switch import halted
from mcp_gateway.path.result_content import data_of, text_of
from mcp_gateway.path.stage import cut_off, failed
from mcp_gateway.schema_validation import Validators, faults
from mcp_gateway.session import SessionForgottenError
from mcp_gateway.session_pool import Sessions
from starling.core.clock import Deadline
from starling.core.errors import ServerUnavailableError
from starling.core.json import JsonObject, storable, storable_text
from starling.core.tool_calls import Effect
from starling.core.tools import Halts, ToolCall, ToolOutcome

IDEMPOTENCY_KEY: Final = "starling/idempotency-key"  # in `_meta` of a request


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Calls the tool once and never again, and turns what comes back into an outcome."""

    directory: Directory
    sessions: Sessions
    validators: Validators
    halts: Halts

    async def __call__(self, call: ToolCall, deadline: Deadline) -> ToolOutcome:
        server = self.directory.server(call.tool.server)
        if server is None:  # removed since it was checked
            return failed("removed", f"The server {call.tool.server} was removed.")
        arguments = cast("dict[str, Any]", storable(call.arguments))
        opened = False
        try:
            async with self.sessions.use(call.tool.server, server.config) as session:
                await session.opened()
                opened = True
                if (stopped := halted(self.halts, call)) is not None:  # while the server started
                    return stopped
                if call.record is not None and call.tool.effect is not Effect.READ:
                    await call.record.leave(call)
                result = await session.call(call.tool.name, arguments, _offered(call))
        except ServerUnavailableError as error:
            return self._lost(call, error, opened=opened)
        except McpError as error:
            return _refused(call, error)
        except ValidationError:
            return failed("invalid_result", f"What {call.tool.full_name} answered is no MCP result.")
        return self._outcome(call, result)

    def _lost(self, call: ToolCall, error: ServerUnavailableError, *, opened: bool) -> ToolOutcome:
        code, text = "server_unavailable", storable_text(str(error))
        if self.directory.server(call.tool.server) is None:
            code, text = "removed", f"The server {call.tool.server} was removed while it was called."
        never_called = not opened or isinstance(error, SessionForgottenError)
        return failed(code, text) if never_called else cut_off(call, code, text)

    def _outcome(self, call: ToolCall, result: CallToolResult) -> ToolOutcome:
        data = data_of(result)
        text = text_of(result, data)
        if result.isError:
            return failed("tool_error", text or f"{call.tool.full_name} failed and didn't say why.")
        if wrong := self._misfit(call, data):
            return failed("invalid_result", f"What {call.tool.full_name} answered is not what it promises: {wrong}.")
        return ToolOutcome("succeeded", text, data)

    def _misfit(self, call: ToolCall, data: JsonObject | None) -> str:
        if call.tool.output_schema is None:
            return ""
        if data is None:
            return "there is no structured content"
        return "; ".join(faults(self.validators.get(call.tool.hash, "output", call.tool.output_schema), data, "result"))


def _offered(call: ToolCall) -> dict[str, str]:
    """What the server is told beside the arguments: by the key it can tell a repetition from another call."""
    return {IDEMPOTENCY_KEY: call.key} if call.key and call.tool.effect is not Effect.READ else {}


def _refused(call: ToolCall, error: McpError) -> ToolOutcome:
    code = "invalid_arguments" if error.error.code == INVALID_PARAMS else "tool_error"
    code = "removed" if error.error.code == METHOD_NOT_FOUND else code
    return failed(code, storable_text(f"{call.tool.server} refused the call: {error.error.message}"))
