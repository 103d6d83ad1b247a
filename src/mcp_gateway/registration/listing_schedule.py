"""When servers are listed: how many at a time, and how long they have and are waited for."""

import asyncio
from collections.abc import Callable, Collection
from pathlib import PurePath
from typing import Final

from mcp_gateway.configuration.servers import ServerConfig, StdioServer
from mcp_gateway.registration.repository import ServerRow
from starling.core.settings.schema import Limits

AT_ONCE: Final = 16
DOWNLOAD_SECONDS: Final = 90.0
_DOWNLOADING: Final = {"npx", "uvx", "bunx", "pipx run", "docker run"}


def start_seconds(config: ServerConfig, limits: Limits, row: ServerRow | None = None) -> float:
    """Return how long a server has to list its tools: longer if it may be downloaded, until it is stored as listed."""
    is_first = row is None or (row.config_hash, row.state) != (config.hash, "ready")
    if is_first and isinstance(config, StdioServer):
        command = PurePath(config.command).name
        if not _DOWNLOADING.isdisjoint((command, " ".join((command, *config.args[:1])))):
            return max(DOWNLOAD_SECONDS, limits.server_start_seconds)
    return limits.server_start_seconds


async def wait_for_most[T](
    asked: Collection[asyncio.Task[T]], is_good: Callable[[T], bool], grace: float, first: float
) -> None:
    """Wait until all tasks are done, or no good answer has come for `grace` seconds, or for as long as the start took.

    The longer of the two counts: a slow machine delays working servers too. The first good answer is waited for
    `first` seconds.
    """
    loop = asyncio.get_running_loop()
    begun = loop.time()
    until = begun + first
    pending = set(asked)
    while pending:
        left = max(0.0, until - loop.time())
        done, pending = await asyncio.wait(pending, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            return
        if any(is_good(task.result()) for task in done):
            until = loop.time() + max(grace, loop.time() - begun)
