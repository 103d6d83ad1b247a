"""Starts servers only to list their tools."""

import asyncio
from collections.abc import Collection, Mapping

from mcp_gateway.configuration.servers import McpConfig, ServerConfig
from mcp_gateway.registration.discovery import list_server
from mcp_gateway.registration.listed_tools import Listed
from mcp_gateway.registration.listing_slots import AT_ONCE
from mcp_gateway.sessions.pool import SessionPool
from mcp_gateway.sessions.private_files import PrivateFiles
from starling.core.errors import ServerUnavailableError
from starling.core.settings.schema import Limits

_LATER = 0.5  # seconds for the session's own time limit, which knows more, to be first


async def list_once(
    sessions: SessionPool, name: str, config: ServerConfig, seconds: float, approved: Collection[str] = ()
) -> Listed:
    """Start a server, list its tools and stop it, within so many seconds. Raises ServerUnavailableError."""
    session = sessions.open_new(name, config)
    try:
        async with asyncio.timeout(seconds + _LATER):
            return await list_server(session, approved)
    except TimeoutError:
        reason = f"it didn't start and list its tools within {seconds:g} s."
        raise ServerUnavailableError(name, reason, "Start it by hand to see what takes it so long.") from None
    finally:
        session.stop()


async def try_servers(
    config: McpConfig, limits: Limits, environment: Mapping[str, str], private: PrivateFiles
) -> Mapping[str, Listed | ServerUnavailableError]:
    """Return what each server offers, or why it can't be used. Nothing is stored, and nothing is left running."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def tried(name: str) -> Listed | ServerUnavailableError:
        try:
            async with slots:
                return await list_once(sessions, name, config[name], limits.server_start_seconds)
        except ServerUnavailableError as error:
            return error

    async with SessionPool(limits, environment, private) as sessions:
        return dict(zip(config, await asyncio.gather(*map(tried, config)), strict=True))
