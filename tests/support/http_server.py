"""HTTP servers of tests: how they begin, and how they end without leaving a connection open."""

import asyncio
import socket

from aiohttp import web

_TURNS = 5  # of the loop, for a connection on its way: it is accepted, given a transport and made known


async def start(runner: web.AppRunner, port: int = 0) -> socket.socket:
    """Listen on this machine, and return what is listened on."""
    await runner.setup()
    listening = socket.create_server(("127.0.0.1", port), backlog=128)
    await web.SockSite(runner, listening).start()
    return listening


async def stop(runner: web.AppRunner, listening: socket.socket) -> None:
    """End a server with all its connections.

    One that is being accepted just then is waited for: nobody would close it, and the next test would be blamed.
    """
    if listening.fileno() >= 0:  # it was closed with the server, where that has ended before
        asyncio.get_running_loop().remove_reader(listening)
    for _ in range(_TURNS):
        await asyncio.sleep(0)
    await runner.cleanup()
