"""Asks a tool of the call's own server whether a call of which too little is known was done."""

from dataclasses import dataclass, replace

from pydantic import BaseModel, ConfigDict, StrictBool, ValidationError

from mcp_gateway.path.stage import Stage
from mcp_gateway.registration.known_servers import Directory
from starling.core.clock import Deadline
from starling.core.json import JsonObject
from starling.core.tool_calls import Effect, Observation
from starling.core.tools import Finding, ToolCall, ToolDefinition


class _Answer(BaseModel):
    model_config = ConfigDict(extra="ignore")

    done: StrictBool
    result: str = ""


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """Calls the tool that the admin named under `reconcile` for the call's tool, in its present version.

    It is a read on behalf of the platform: the run's grant isn't checked.
    """

    directory: Directory
    path: Stage

    async def __call__(self, call: ToolCall, deadline: Deadline) -> Finding | None:
        """Return what that tool answers, None where there is none or its answer isn't clear."""
        tool = self._tool(call)
        if tool is None:
            return None
        arguments: JsonObject = {"key": call.idempotency_key, "arguments": call.arguments}
        question = ToolCall(
            f"{call.id}.found",
            call.run_id,
            call.path,
            tool,
            arguments,
            tenant=call.tenant,
            thread_id=call.thread_id,
        )
        outcome = await self.path(question, deadline, None)
        if outcome.status == "failed" or outcome.data is None:
            return None
        try:
            answer = _Answer.model_validate(outcome.data)
        except ValidationError:
            return None
        observation = Observation.FOUND_DONE if answer.done else Observation.FOUND_NOT_DONE
        return Finding(observation, answer.result, tool.full_name)

    def _tool(self, call: ToolCall) -> ToolDefinition | None:
        server = self.directory.server(call.tool.server)
        options = server and server.config.options.tools.get(call.tool.name)
        if not server or not options or options.reconcile is None:
            return None
        found = (tool for tool in server.listing.tools if tool.name == options.reconcile)
        return next((replace(tool, effect=Effect.READ) for tool in found), None)
