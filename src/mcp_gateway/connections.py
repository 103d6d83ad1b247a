"""Sessions with servers, and what is done on them: listing and calling tools. Imports MCP's SDK."""

from mcp_gateway.configuration.servers import ServerConfig
from mcp_gateway.gateway import GatewayParts
from mcp_gateway.path.post_effects import Invalidate, Relist
from mcp_gateway.path.wiring import PathPorts, build_path
from mcp_gateway.registration.approved_tools import LiveReview
from mcp_gateway.registration.discovery import list_once
from mcp_gateway.registration.known_servers import KnownServer
from mcp_gateway.registration.listed_tools import Listed
from mcp_gateway.registration.live_check import LiveCheck
from mcp_gateway.sessions.pool import SessionPool


class ServerConnections:
    """The sessions of a gateway, the check of the tools on them, and the path of a call."""

    def __init__(self, parts: GatewayParts, invalidate: Invalidate, relist: Relist) -> None:
        self.sessions = SessionPool(parts.limits, parts.environment, parts.private, parts.breakers)
        self._seconds = parts.limits.server_start_seconds
        self._live = LiveCheck(LiveReview(parts.observed), self._seconds)
        stored = parts.artifacts, parts.cache, parts.repository.claims
        ports = PathPorts(
            parts.directory, self.sessions, parts.breakers, self._live, parts.halts, *stored, invalidate, relist
        )
        self.path = build_path(ports, parts.limits, parts.approval)

    async def list_server(self, name: str, config: ServerConfig) -> Listed:
        """Start a server, list its tools and stop it. Raises ServerUnavailableError."""
        return await list_once(self.sessions, name, config, self._seconds)

    def warm(self, name: str, server: KnownServer) -> None:
        """Begin to open a session and to list its tools. A failure is raised by the first call."""
        if (session := self.sessions.warm(name, server.config)) is not None:
            self._live.begin(session, server)

    async def close(self) -> None:
        """Stop listing and close all sessions and processes."""
        await self._live.stop()
        await self.sessions.close()


async def connect(parts: GatewayParts, invalidate: Invalidate, relist: Relist) -> ServerConnections:
    """Return the connections of a gateway. See `mcp_gateway.gateway.Connect`."""
    return ServerConnections(parts, invalidate, relist)
