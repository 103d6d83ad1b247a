"""The servers that may be called at this moment: the gateway's only mutable state beside its sessions."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from mcp_gateway.configuration.options import NO_OPTIONS, ToolOptions
from mcp_gateway.configuration.servers import McpConfig, ServerConfig
from mcp_gateway.configuration.variable_expansion import secret_values
from starling.core.secrets.known import KnownSecrets
from starling.core.tool_calls import Effect
from starling.core.tools import ServerListing, ToolCall, ToolDefinition


@dataclass(frozen=True, slots=True)
class KnownServer:
    """A server that may be called, and the approved hash of each of its tools."""

    config: ServerConfig
    listing: ServerListing
    tools: Mapping[str, str]


class Directory:
    """The known servers by name, replaced as a whole, and the secrets that results of tools must not show.

    `secrets` are those of the platform by name; the values that configurations refer to in `environment` are added.
    """

    def __init__(
        self, secrets: Mapping[str, str] = MappingProxyType({}), environment: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self._servers: Mapping[str, KnownServer] = {}
        self._own_secrets = secrets
        self._environment = environment
        self.secrets = KnownSecrets.of(secrets)

    def server(self, name: str) -> KnownServer | None:
        """Return a server, None if it was removed."""
        return self._servers.get(name)

    def tool(self, call: ToolCall) -> ToolDefinition | None:
        """Return the called tool as its server listed it, None if it was removed."""
        server = self._servers.get(call.tool.server)
        return (
            None if server is None else next((one for one in server.listing.tools if one.name == call.tool.name), None)
        )

    def tool_options(self, call: ToolCall) -> ToolOptions:
        """Return the settings of the called tool, as they are now."""
        server = self._servers.get(call.tool.server)
        return NO_OPTIONS if server is None else server.config.options.tool(call.tool.name)

    def effect(self, call: ToolCall) -> Effect:
        """Return the effect of the called tool, as it is configured now."""
        server = self._servers.get(call.tool.server)
        return Effect.UNSAFE if server is None else server.config.options.effect_of(call.tool.name)

    def replace(self, config: McpConfig, listings: Iterable[ServerListing]) -> None:
        """Replace all known servers."""
        self.secrets = KnownSecrets.of({**secret_values(config, self._environment), **self._own_secrets})
        self._servers = {
            listing.name: KnownServer(config[listing.name], listing, {tool.name: tool.hash for tool in listing.tools})
            for listing in listings
        }
