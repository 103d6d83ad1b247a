"""What may be called at this moment: the grant of the run's key and the kill switches, checked where a call is made."""

from dataclasses import dataclass

from mcp_gateway.path.stage import Stage, not_sent
from starling.core.clock import Deadline
from starling.core.tools import CallRecord, Halts, ToolCall, ToolOutcome


@dataclass(frozen=True, slots=True)
class Authorization:
    """Stops calls of tools outside the run's grant, however an agent learned of them."""

    inner: Stage

    async def __call__(self, call: ToolCall, deadline: Deadline, record: CallRecord | None) -> ToolOutcome:
        if call.grant is None or call.grant.permits(call.tool.server, call.tool.full_name):
            return await self.inner(call, deadline, record)
        return not_sent("not_allowed", f"The grant of this run's key doesn't include {call.tool.full_name}.")


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
