"""What keeps a stdio server from the platform's files on this machine."""

import asyncio
from collections.abc import Mapping
from functools import cached_property
from typing import Literal

from mcp_gateway.configuration.servers import ServerConfig, StdioServer
from mcp_gateway.configuration.variable_expansion import resolve
from mcp_gateway.sessions.private_files import PrivateFiles, unhidden_reason, user_of
from starling.core.errors import ServerUnavailableError

type Isolation = Literal["own_user", "mount_namespace", "none"]


class ServerIsolation:
    """Tells what keeps servers from the platform's files; the machine is asked once."""

    def __init__(self, private: PrivateFiles, environment: Mapping[str, str]) -> None:
        self._private = private
        self._environment = environment

    async def of(self, name: str, config: ServerConfig) -> Isolation | None:
        """Return what isolates a server from this machine's platform, None for a remote one."""
        if not isinstance(config, StdioServer):
            return None
        resolved = self._resolved(name, config)
        if resolved is not None and user_of(self._private, resolved) is not None:
            return "own_user"
        return "none" if await self.unhidden_reason() else "mount_namespace"

    def unreached(self, name: str, config: ServerConfig) -> str:
        """Return the file or folder because of which a server doesn't run as the servers' user, empty without one."""
        resolved = self._resolved(name, config)
        return self._private.user.unreached(resolved) if self._private.user and resolved else ""

    async def unhidden_reason(self) -> str:
        """Return why files can't be hidden from servers on this machine; nothing where they can."""
        return await asyncio.shield(self._reason)

    @cached_property
    def _reason(self) -> asyncio.Task[str]:
        return asyncio.get_running_loop().create_task(unhidden_reason(), name="probe of mount namespaces")

    def _resolved(self, name: str, config: ServerConfig) -> StdioServer | None:
        try:
            found = resolve(name, config, self._environment).config
        except ServerUnavailableError:  # a variable that isn't set: it can't start either
            return None
        return found if isinstance(found, StdioServer) else None
