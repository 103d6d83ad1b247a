"""Taking away acts at once: a call reaches only what is known now, in the version that was granted."""

from dataclasses import dataclass

from mcp_gateway.directory import Directory
from mcp_gateway.path.stage import NOTHING_DONE, Step, failed
from starling.core.clock import Deadline
from starling.core.tools import ToolCall, ToolOutcome


@dataclass(frozen=True, slots=True)
class Known:
    """Stops calls of servers and tools that were removed, and of tools whose definition is another one now."""

    directory: Directory
    inner: Step

    async def __call__(self, call: ToolCall, deadline: Deadline) -> ToolOutcome:
        why = self._missing(call)
        return failed("removed", f"{why} {NOTHING_DONE}") if why else await self.inner(call, deadline)

    def _missing(self, call: ToolCall) -> str:
        server = self.directory.server(call.tool.server)
        if server is None:
            return f"The server {call.tool.server} was removed."
        pin = server.tools.get(call.tool.name)
        if pin is None:
            return f"{call.tool.full_name} was removed from its server."
        return "" if pin == call.tool.hash else f"{call.tool.full_name} was changed by its server since it was granted."
