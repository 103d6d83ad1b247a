"""Kill switches: what was switched off is called no more, from this moment on."""

from dataclasses import dataclass

from mcp_gateway.path.stage import NOTHING_DONE, Step, failed
from starling.core.clock import Deadline
from starling.core.tools import Halts, ToolCall, ToolOutcome


@dataclass(frozen=True, slots=True)
class Halted:
    """Stops calls of servers, by agents and for tenants that were switched off, and for keys that were revoked."""

    halts: Halts
    inner: Step

    async def __call__(self, call: ToolCall, deadline: Deadline) -> ToolOutcome:
        return halted(self.halts, call) or await self.inner(call, deadline)


def halted(halts: Halts, call: ToolCall) -> ToolOutcome | None:
    """Return what becomes of a call that must not be made now, None for any other."""
    reason = halts.reason(call)
    return failed("switched_off", f"{reason} {NOTHING_DONE}") if reason else None
