"""Some calls need somebody's approval, by the configuration as it is now."""

from dataclasses import dataclass

from mcp_gateway.directory import Directory
from mcp_gateway.path.stage import NOTHING_DONE, Step, failed
from starling.core.clock import Deadline
from starling.core.tools import ToolCall, ToolOutcome


@dataclass(frozen=True, slots=True)
class Approval:
    """Has a call approved, with exactly its arguments, before anything of it happens. Nobody to ask means no."""

    directory: Directory
    inner: Step

    async def __call__(self, call: ToolCall, deadline: Deadline) -> ToolOutcome:
        reason = self._reason(call)
        if not reason:
            return await self.inner(call, deadline)
        if call.record is None:
            return failed("not_approved", f"{reason} Nobody can be asked here. {NOTHING_DONE}")
        refused = await call.record.approve(call, reason)
        return await self.inner(call, deadline) if refused is None else refused

    def _reason(self, call: ToolCall) -> str:
        server = self.directory.server(call.tool.server)
        match server and server.config.options.approval_of(call.tool.name):
            case "always":
                return f"Every call of {call.tool.full_name} needs approval."
            case "unsafe":
                return f"{call.tool.full_name} may change something that can't be taken back."
            case _:
                return ""
