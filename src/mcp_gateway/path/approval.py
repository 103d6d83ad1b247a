"""Approval of single calls by a person, as the configuration demands it at the moment of the call."""

from dataclasses import dataclass

from mcp_gateway.path.stage import Stage, not_sent
from mcp_gateway.registration.known_servers import Directory
from starling.core.clock import Deadline
from starling.core.tool_calls import ApprovalPolicy, Effect
from starling.core.tools import CallRecord, ToolCall, ToolOutcome


@dataclass(frozen=True, slots=True)
class CallApproval:
    """Has a call approved, with exactly its arguments, before it is made. Without a run to ask in, it isn't made.

    `default` holds for servers whose configuration has no policy.
    """

    directory: Directory
    inner: Stage
    default: ApprovalPolicy = "never"

    async def __call__(self, call: ToolCall, deadline: Deadline, record: CallRecord | None) -> ToolOutcome:
        reason = self._reason(call)
        if not reason:
            return await self.inner(call, deadline, record)
        if record is None:
            return not_sent("not_approved", f"{reason} It belongs to no run in which a person could be asked.")
        refusal = await record.approve(call, reason)
        return await self.inner(call, deadline, record) if refusal is None else refusal

    def _reason(self, call: ToolCall) -> str:
        if call.approval == "effects" and call.tool.effect is not Effect.READ:
            return f"{call.agent} may call {call.tool.full_name}, which may change something, only with approval."
        server = self.directory.server(call.tool.server)
        match server and server.config.options.approval_of(call.tool.name, self.default, call.least_approval):
            case "always":
                return f"Every call of {call.tool.full_name} needs approval."
            case "unsafe" if not call.resource:  # which is read, whatever its tool does
                return f"{call.tool.full_name} may change something that can't be taken back."
            case _:
                return ""
