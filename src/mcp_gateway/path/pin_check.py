"""A call reaches only a tool that is registered now, in the version that was granted."""

from dataclasses import dataclass

from mcp_gateway.path.stage import Stage, not_sent
from mcp_gateway.registration.known_servers import Directory
from starling.core.clock import Deadline
from starling.core.tools import CallRecord, ToolCall, ToolOutcome


@dataclass(frozen=True, slots=True)
class PinCheck:
    """Stops calls of servers and tools that were removed, and of tools whose definition has changed."""

    directory: Directory
    inner: Stage

    async def __call__(self, call: ToolCall, deadline: Deadline, record: CallRecord | None) -> ToolOutcome:
        reason = self._reason(call)
        return not_sent("removed", reason) if reason else await self.inner(call, deadline, record)

    def _reason(self, call: ToolCall) -> str:
        server = self.directory.server(call.tool.server)
        if server is None:
            return f"The server {call.tool.server} was removed."
        pin = server.tools.get(call.tool.name)
        if pin is None:
            return f"{call.tool.full_name} was removed from its server."
        return "" if pin == call.tool.hash else f"{call.tool.full_name} was changed by its server since it was granted."
