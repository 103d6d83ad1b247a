"""What may be called at this moment, checked where a call is made: the key's grant, kill switches, pinned tools."""

from dataclasses import dataclass

from mcp_gateway.path.stage import Stage, not_sent, quarantined
from mcp_gateway.registration.known_servers import Directory
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


@dataclass(frozen=True, slots=True)
class PinCheck:
    """Stops calls of servers and tools that were removed, and of tools that are quarantined or have changed."""

    directory: Directory
    inner: Stage

    async def __call__(self, call: ToolCall, deadline: Deadline, record: CallRecord | None) -> ToolOutcome:
        server = self.directory.server(call.tool.server)
        if server is None:
            return not_sent("removed", f"The server {call.tool.server} was removed.")
        if (reason := server.listing.quarantined.get(call.tool.name)) is not None:
            return quarantined(call, reason)
        pin = server.tools.get(call.tool.name)
        if pin is None:
            return not_sent("removed", f"{call.tool.full_name} was removed from its server.")
        if pin != call.tool.hash:
            return not_sent("removed", f"{call.tool.full_name} was changed by its server since it was granted.")
        return await self.inner(call, deadline, record)


def switched_off(halts: Halts, call: ToolCall) -> ToolOutcome | None:
    """Return the outcome of a call that a switch stops now, None for any other."""
    reason = halts.reason(call)
    return not_sent("switched_off", reason) if reason else None
