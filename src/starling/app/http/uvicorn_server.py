"""uvicorn, started and stopped inside a running event loop, and the port file that names its address."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager, asynccontextmanager
from importlib.metadata import version
from urllib.parse import urlsplit

import uvicorn
from fastapi import FastAPI

from starling.app.access.port_file import RunningPlatform, local_address, published
from starling.app.http.app_state import drain
from starling.app.http.graceful_shutdown import GracefulShutdown
from starling.app.http.http_protocol import LimitedHttpProtocol
from starling.app.http.loopback_policy import is_loopback
from starling.core.settings.client import database_name
from starling.core.settings.schema import Settings

_STOP_SECONDS = 5  # for requests to end
_IDLE_SECONDS = 75  # of a connection: load balancers keep theirs for 60, and lose a request over one that just closes


class _Server(uvicorn.Server):
    """Installs no signal handlers, and wakes up once a second instead of ten times."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._stopped = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self):
        yield

    async def main_loop(self) -> None:
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await self._stopped.wait()

    def stop(self) -> None:
        """Have the server shut down."""
        self.should_exit = True
        self._stopped.set()


@asynccontextmanager
async def serving(app: FastAPI, listener: socket.socket) -> AsyncGenerator[str]:
    """Serve until the context ends; gives the address.

    At the end streams are closed, and requests that take some seconds longer are answered with 503.
    """
    closing = GracefulShutdown(app)
    config = uvicorn.Config(
        closing,
        http=LimitedHttpProtocol,
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=_STOP_SECONDS + 2,  # it would answer 500: we are first
        ws="none",
        proxy_headers=False,  # the guard has to see who is really there
    )
    server = _Server(config)
    task = asyncio.get_running_loop().create_task(server.serve([listener]), name="http")
    host, port = listener.getsockname()[:2]
    try:
        yield f"http://{f'[{host}]' if ':' in host else host}:{port}"
    finally:
        drain(app)
        closing.close()
        server.stop()
        await asyncio.wait({task}, timeout=_STOP_SECONDS)
        await closing.cut_off()
        await task
        listener.close()


def published_address(settings: Settings, address: str) -> AbstractContextManager[None]:
    """Return the context during which commands on the data folder find this process at `address`."""
    here = local_address(address)
    url = settings.database_url.get_secret_value() if settings.database_url else ""
    keyless = not settings.require_keys and is_loopback(urlsplit(here).hostname or "")
    platform = RunningPlatform(here, version("starling-swarm"), os.getpid(), database_name(url), keyless)
    return published(settings.data_dir, platform)
