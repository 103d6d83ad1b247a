"""What the key of a run may reach, looked at once more where the call leaves."""

from dataclasses import dataclass

from mcp_gateway.path.stage import NOTHING_DONE, Step, failed
from starling.core.clock import Deadline
from starling.core.tools import ToolCall, ToolOutcome


@dataclass(frozen=True, slots=True)
class Granted:
    """Stops calls of tools outside the run's grant, however an agent came to know them."""

    inner: Step

    async def __call__(self, call: ToolCall, deadline: Deadline) -> ToolOutcome:
        if call.grant is None or call.grant.permits(call.tool.server, call.tool.full_name):
            return await self.inner(call, deadline)
        return failed("not_allowed", f"This run's key doesn't reach {call.tool.full_name}. {NOTHING_DONE}")
