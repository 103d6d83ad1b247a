"""A call reaches only a tool that is registered now, in the version that was granted."""

from dataclasses import dataclass

from mcp_gateway.path.stage import Stage, not_sent, quarantined
from mcp_gateway.registration.known_servers import Directory
from starling.core.clock import Deadline
from starling.core.tools import CallRecord, ToolCall, ToolOutcome


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
