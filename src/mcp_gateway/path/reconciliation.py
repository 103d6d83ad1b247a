"""What became of a call whose answer was lost, as a tool of its own server tells."""

from dataclasses import dataclass, replace

from pydantic import BaseModel, ConfigDict, StrictBool, ValidationError

from mcp_gateway.directory import Directory
from mcp_gateway.path.stage import Step
from starling.core.clock import Deadline
from starling.core.json import JsonObject
from starling.core.tool_calls import Effect
from starling.core.tools import Finding, ToolCall, ToolDefinition


class _Answer(BaseModel):
    model_config = ConfigDict(extra="ignore")

    done: StrictBool
    result: str = ""


@dataclass(frozen=True, slots=True)
class Reconcile:
    """Calls the tool that the admin named under `reconcile` for the call's tool, as the server has it now.

    It is a read, made on behalf of the platform: the run's grant isn't asked.
    """

    directory: Directory
    path: Step

    async def __call__(self, call: ToolCall, deadline: Deadline) -> Finding | None:
        """Return what that tool says, None where there is none or it doesn't say it clearly."""
        tool = self._tool(call)
        if tool is None:
            return None
        arguments: JsonObject = {"key": call.key, "arguments": call.arguments}
        asked = ToolCall(f"{call.id}.found", call.run_id, call.path, tool, arguments, tenant=call.tenant)
        outcome = await self.path(asked, deadline)
        if outcome.status == "failed" or outcome.data is None:
            return None
        try:
            answer = _Answer.model_validate(outcome.data)
        except ValidationError:
            return None
        return Finding(answer.done, answer.result, tool.full_name)

    def _tool(self, call: ToolCall) -> ToolDefinition | None:
        server = self.directory.server(call.tool.server)
        options = server and server.config.options.tools.get(call.tool.name)
        if not server or not options or options.reconcile is None:
            return None
        found = (tool for tool in server.listing.tools if tool.name == options.reconcile)
        return next((replace(tool, effect=Effect.READ) for tool in found), None)
