"""Normal results that are errors, because the tool reports its errors that way and the admin says how."""

from dataclasses import dataclass, replace

from mcp_gateway.path.stage import Stage, failed
from mcp_gateway.registration.known_servers import Directory
from mcp_gateway.schemas.large_values import large_value_has, value_has
from starling.core.clock import Deadline
from starling.core.tool_calls import Observation
from starling.core.tools import CallRecord, ToolCall, ToolOutcome


@dataclass(frozen=True, slots=True)
class ErrorWhen:
    """Turns a result that meets a condition of `error_when` into what the tool's own `isError` would have been."""

    directory: Directory
    inner: Stage

    async def __call__(self, call: ToolCall, deadline: Deadline, record: CallRecord | None) -> ToolOutcome:
        outcome = await self.inner(call, deadline, record)
        conditions = self.directory.tool_options(call).error_when
        if not conditions or outcome.observation is not Observation.COMPLETED:
            return outcome
        met = any(one.text_contains is not None and one.text_contains in outcome.text for one in conditions)
        expected = [(one.pointer, one.equals) for one in conditions if one.pointer is not None]
        if not met and expected and outcome.large_data:
            met = await large_value_has(expected, outcome.large_data)
        elif not met:
            met = outcome.data is not None and value_has(expected, outcome.data)
        if met is None:
            text = f"The result of {call.tool.full_name} takes too much time or memory to check for errors."
            return failed(call, Observation.INVALID_RESULT, "invalid_result", text)
        if not met:
            return outcome
        text = outcome.text or f"{call.tool.full_name} failed without a message."
        return replace(failed(call, Observation.TOOL_ERROR, "tool_error", text), binaries=outcome.binaries)
