"""Reading of a resource that a result linked to: on the link's own server, and nowhere else.

An address is only a text here, also one like `file:///etc/passwd`: it is sent to the server that gave the link.
"""

from dataclasses import dataclass

from mcp import McpError
from pydantic import ValidationError

from mcp_gateway.path.authorization import switched_off
from mcp_gateway.path.result_content import resource_text
from mcp_gateway.path.stage import Stage, failed, not_sent
from mcp_gateway.registration.known_servers import Directory
from mcp_gateway.sessions.large_messages import LargeResult
from mcp_gateway.sessions.pool import SessionPool
from starling.core.artifacts import Binary
from starling.core.clock import Deadline
from starling.core.errors import ServerUnavailableError
from starling.core.json import storable_text
from starling.core.tool_calls import Effect, Observation
from starling.core.tools import CallRecord, Halts, ToolCall, ToolOutcome


@dataclass(frozen=True, slots=True)
class LinkedResources:
    """Sends reads of resources to `reading`, all calls of tools on to `inner`."""

    reading: Stage
    inner: Stage

    async def __call__(self, call: ToolCall, deadline: Deadline, record: CallRecord | None) -> ToolOutcome:
        if not call.resource:
            return await self.inner(call, deadline, record)
        if call.tool.effect is not Effect.READ:
            return not_sent("invalid_arguments", "A resource is only read.")
        return await self.reading(call, deadline, record)


@dataclass(frozen=True, slots=True)
class ResourceRead:
    """Asks the server of the call's tool for the resource."""

    directory: Directory
    sessions: SessionPool
    halts: Halts

    async def __call__(self, call: ToolCall, deadline: Deadline, record: CallRecord | None) -> ToolOutcome:
        server = self.directory.server(call.tool.server)
        if server is None:
            return not_sent("removed", f"The server {call.tool.server} was removed.")
        try:
            async with self.sessions.use(call.tool.server, server.config) as session:
                await session.opened()
                if (stopped := switched_off(self.halts, call)) is not None:
                    return stopped
                found = await session.read_resource(call.resource)
        except ServerUnavailableError as error:
            return failed(call, Observation.CONNECTION_LOST, error.code, storable_text(str(error)))
        except McpError as error:
            text = f"{call.tool.server} refused to read it: {storable_text(error.error.message)}"
            return failed(call, Observation.INTERNAL_ERROR, "tool_error", text)
        except ValidationError:
            text = f"The answer of {call.tool.server} is not what MCP defines for a resource."
            return failed(call, Observation.INVALID_RESULT, "invalid_result", text)
        if isinstance(found, LargeResult):
            return ToolOutcome(Observation.COMPLETED, found.text, binaries=found.binaries)
        binaries: list[Binary] = []
        text = resource_text(found.contents, binaries)
        return ToolOutcome(Observation.COMPLETED, text, binaries=tuple(binaries))
