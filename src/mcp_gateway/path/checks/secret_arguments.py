"""Arguments that contain a secret of the platform don't leave it, unless the tool's settings name the secret."""

from dataclasses import dataclass

from mcp_gateway.path.stage import Stage, not_sent
from mcp_gateway.registration.known_servers import Directory
from starling.core.clock import Deadline
from starling.core.secrets.known import strings_in
from starling.core.tools import CallRecord, ToolCall, ToolOutcome


@dataclass(frozen=True, slots=True)
class SecretArguments:
    """Refuses calls whose arguments contain a known secret, also an encoded one."""

    directory: Directory
    inner: Stage

    async def __call__(self, call: ToolCall, deadline: Deadline, record: CallRecord | None) -> ToolOutcome:
        found = self.directory.secrets.names_in("\n".join(strings_in(call.arguments)))
        if found and (refused := sorted(found - self._allowed(call))):
            text = f"The arguments contain a secret of the platform, which tools don't get: {', '.join(refused)}."
            return not_sent("secret_in_arguments", text)
        return await self.inner(call, deadline, record)

    def _allowed(self, call: ToolCall) -> frozenset[str]:
        server = self.directory.server(call.tool.server)
        return frozenset(server.config.options.tool(call.tool.name).secrets) if server else frozenset()
