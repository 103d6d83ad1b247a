"""The servers that may be called at this moment: the gateway's only mutable state beside its sessions."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mcp_gateway.configuration.servers import McpConfig, ServerConfig
from starling.core.tools import ServerListing


@dataclass(frozen=True, slots=True)
class KnownServer:
    """A server that may be called, and the current hash of each of its tools."""

    config: ServerConfig
    listing: ServerListing
    tools: Mapping[str, str]


class Directory:
    """The known servers by name, replaced as a whole."""

    def __init__(self) -> None:
        self._servers: Mapping[str, KnownServer] = {}

    def server(self, name: str) -> KnownServer | None:
        """Return a server, None if it was removed."""
        return self._servers.get(name)

    def replace(self, config: McpConfig, listings: Iterable[ServerListing]) -> None:
        """Replace all known servers."""
        self._servers = {
            listing.name: KnownServer(config[listing.name], listing, {tool.name: tool.hash for tool in listing.tools})
            for listing in listings
        }

    def config_hashes(self) -> dict[str, str]:
        """Return the hash of each server's configuration, by name."""
        return {name: server.config.hash for name, server in self._servers.items()}
