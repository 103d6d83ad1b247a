"""Kill switches: calls of what is switched off are stopped from that moment on."""

from dataclasses import dataclass

from mcp_gateway.path.stage import Stage, not_sent
from starling.core.clock import Deadline
from starling.core.tools import CallRecord, Halts, ToolCall, ToolOutcome


@dataclass(frozen=True, slots=True)
class KillSwitch:
    """Stops calls of servers, by agents and for tenants that were switched off, and for keys that were revoked."""

    halts: Halts
    inner: Stage

    async def __call__(self, call: ToolCall, deadline: Deadline, record: CallRecord | None) -> ToolOutcome:
        return switched_off(self.halts, call) or await self.inner(call, deadline, record)


def switched_off(halts: Halts, call: ToolCall) -> ToolOutcome | None:
    """Return the outcome of a call that a switch stops now, None for any other."""
    reason = halts.reason(call)
    return not_sent("switched_off", reason) if reason else None
