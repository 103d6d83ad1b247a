"""The grant of the run's key, checked again right where a call is made."""

from dataclasses import dataclass

from mcp_gateway.path.stage import Stage, not_sent
from starling.core.clock import Deadline
from starling.core.tools import CallRecord, ToolCall, ToolOutcome


@dataclass(frozen=True, slots=True)
class Authorization:
    """Stops calls of tools outside the run's grant, however an agent learned of them."""

    inner: Stage

    async def __call__(self, call: ToolCall, deadline: Deadline, record: CallRecord | None) -> ToolOutcome:
        if call.grant is None or call.grant.permits(call.tool.server, call.tool.full_name):
            return await self.inner(call, deadline, record)
        return not_sent("not_allowed", f"The grant of this run's key doesn't include {call.tool.full_name}.")
