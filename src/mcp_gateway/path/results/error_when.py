"""Normal results that are errors, because the tool reports its errors that way and the admin says how."""

from dataclasses import dataclass

from mcp_gateway.configuration.error_conditions import ErrorCondition
from mcp_gateway.path.results.met_conditions import is_met, is_met_by_large
from mcp_gateway.path.stage import Stage, failed
from mcp_gateway.registration.known_servers import Directory
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
        met = any(is_met(one, outcome.text, outcome.data) for one in conditions if _is_known(one, outcome))
        large = [one for one in conditions if not _is_known(one, outcome)]
        met = met or (bool(large) and await is_met_by_large(large, outcome.large_data))
        if met is None:
            text = f"The result of {call.tool.full_name} takes too much time or memory to check for errors."
            return failed(call, Observation.INVALID_RESULT, "invalid_result", text)
        if not met:
            return outcome
        text = outcome.text or f"{call.tool.full_name} failed without a message."
        return failed(call, Observation.TOOL_ERROR, "tool_error", text)


def _is_known(condition: ErrorCondition, outcome: ToolOutcome) -> bool:
    """Whether what a condition is about is at hand here."""
    return condition.text_contains is not None or not outcome.large_data
