"""The last stages of a call's path: what is sent beside the arguments, and the call itself, on an open session."""

from dataclasses import dataclass, replace
from typing import Any, Final

from mcp import McpError
from mcp.types import INVALID_PARAMS, METHOD_NOT_FOUND, CallToolResult
from pydantic import ValidationError

from mcp_gateway.path.authorization import switched_off
from mcp_gateway.path.result_content import data_of, resource_links, text_of
from mcp_gateway.path.schema_checks import result_violations
from mcp_gateway.path.stage import Stage, failed, not_sent, quarantined
from mcp_gateway.registration.known_servers import Directory
from mcp_gateway.registration.live_check import LiveCheck
from mcp_gateway.schemas.validation import Validators
from mcp_gateway.sessions.large_messages import LargeResult
from mcp_gateway.sessions.messages import FENCE, IDEMPOTENCY_KEY, IN_DOUBT, UNREADABLE
from mcp_gateway.sessions.pool import SessionPool
from mcp_gateway.sessions.session import NotProcessedError
from starling.core.artifacts import Binary
from starling.core.clock import Deadline
from starling.core.errors import ServerUnavailableError
from starling.core.json import storable_text
from starling.core.tool_calls import Effect, Observation
from starling.core.tools import CallRecord, Halts, ToolCall, ToolOutcome
from starling.infra.tracing.spans import trace_headers

RUN_ID: Final = "starling/run-id"
THREAD_ID: Final = "starling/thread-id"
TENANT: Final = "starling/tenant"
_REJECTIONS: Final = {INVALID_PARAMS: "invalid_arguments", METHOD_NOT_FOUND: "removed"}


@dataclass(frozen=True, slots=True)
class RequiredContext:
    """Adds the ids to `_meta` of calls whose tool has `requires_context`; without a run and thread it isn't called."""

    directory: Directory
    inner: Stage

    async def __call__(self, call: ToolCall, deadline: Deadline, record: CallRecord | None) -> ToolOutcome:
        if not self.directory.tool_options(call).requires_context:
            return await self.inner(call, deadline, record)
        if not (call.run_id and call.thread_id):
            return not_sent("no_context", f"{call.tool.full_name} has to be told the run and thread of a call.")
        context = {RUN_ID: call.run_id, THREAD_ID: call.thread_id, TENANT: call.tenant}
        return await self.inner(replace(call, meta={**call.meta, **context}), deadline, record)


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Calls the tool once, and makes an outcome of the answer."""

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
            code, text = error.code, storable_text(str(error))
            if self.directory.server(call.tool.server) is None:
                code, text = "removed", f"The server {call.tool.server} was removed while it was called."
            is_sent = opened and not isinstance(error, NotProcessedError)
            return failed(call, Observation.CONNECTION_LOST, code, text) if is_sent else not_sent(code, text)
        except McpError as error:
            return _error(call, error)
        except ValidationError:
            text = f"The answer of {call.tool.full_name} is not an MCP result."
            return failed(call, Observation.INVALID_RESULT, "invalid_result", text)
        return await self._answered(call, result)

    async def _answered(self, call: ToolCall, result: CallToolResult | LargeResult) -> ToolOutcome:
        binaries: list[Binary] = []
        if isinstance(result, LargeResult):
            data, text, is_error, binaries[:] = result.small_data, result.text, result.is_error, result.binaries
        else:
            data = data_of(result)
            text, is_error = text_of(result, data, binaries), result.isError
        if is_error:
            text = text or f"{call.tool.full_name} failed without a message."
            return replace(failed(call, Observation.TOOL_ERROR, "tool_error", text), binaries=tuple(binaries))
        if call.tool.effect is not Effect.READ and not text.strip():  # a review rejects an empty output: it was done
            text = f"{call.tool.full_name} was done and returned nothing."
        large = result.data if isinstance(result, LargeResult) and data is None else b""
        schema, key = call.tool.output_schema, call.tool.schemas_key
        if schema is not None and (violations := await result_violations(self.validators, key, schema, data, large)):
            text = f"The result of {call.tool.full_name} violates its output schema: {violations}."
            return failed(call, Observation.INVALID_RESULT, "invalid_result", text)
        links = () if isinstance(result, LargeResult) else resource_links(result)
        files = tuple(binaries)
        return ToolOutcome(Observation.COMPLETED, text, data, resources=links, large_data=large, binaries=files)


def _meta(call: ToolCall) -> dict[str, Any]:
    """Return what is sent beside the arguments, also how the server recognizes repetitions and outdated calls."""
    effectful = call.idempotency_key and call.tool.effect is not Effect.READ
    meta = {**call.meta, **trace_headers()}
    return {**meta, IDEMPOTENCY_KEY: call.idempotency_key, FENCE: call.fence} if effectful else meta


def _error(call: ToolCall, error: McpError) -> ToolOutcome:
    message = storable_text(error.error.message)
    if error.error.code == UNREADABLE:
        text = f"The answer of {call.tool.full_name} is unreadable: {message}."
        return failed(call, Observation.INVALID_RESULT, "invalid_result", text)
    if error.error.code == IN_DOUBT:
        text = f"The outcome of {call.tool.full_name} is not known: {message}."
        return failed(call, Observation.TIMED_OUT, "outcome_unknown", text)
    if code := _REJECTIONS.get(error.error.code):
        return failed(call, Observation.REJECTED, code, f"{call.tool.server} rejected the call: {message}")
    text = f"{call.tool.server} answered the call with error {error.error.code}: {message}."
    return failed(call, Observation.INTERNAL_ERROR, "tool_error", text)
