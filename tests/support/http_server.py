"""Start and stop HTTP servers of tests without leaving a connection open."""

import asyncio
import socket

from aiohttp import web

_TURNS = 5  # event loop iterations that accepting a connection takes


async def start(runner: web.AppRunner, port: int = 0) -> socket.socket:
    """Listen on 127.0.0.1; return the listening socket."""
    await runner.setup()
    listening = socket.create_server(("127.0.0.1", port), backlog=128)
    await web.SockSite(runner, listening).start()
    return listening


async def stop(runner: web.AppRunner, listening: socket.socket) -> None:
    """End a server with all its connections.

    A connection that is just being accepted is waited for: nothing else would close it, and a later test would fail.
    """
    if listening.fileno() >= 0:  # otherwise the server was stopped before
        asyncio.get_running_loop().remove_reader(listening)
    for _ in range(_TURNS):
        await asyncio.sleep(0)
    await runner.cleanup()
