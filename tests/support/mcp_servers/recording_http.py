"""The recording server over streamable HTTP, by the SDK: `recording_http.py <file> <port>`."""

import asyncio
import os
import sys
from pathlib import Path

from mcp.server.fastmcp import FastMCP

_FILE, _PORT = Path(sys.argv[1]), int(sys.argv[2])
_ARRIVED = asyncio.Event()
_waiting: list[int] = []

server = FastMCP("recording", log_level="CRITICAL", port=_PORT)


def _record(text: str) -> None:
    with _FILE.open("a") as file:
        file.write(f"{text}\n")


@server.tool()
async def record(text: str) -> str:
    """Write a line."""
    _record(text)
    return f"recorded {text}"


@server.tool()
async def pid() -> int:
    """Return the process id of the server."""
    return os.getpid()


@server.tool()
async def meet(others: int) -> str:
    """Wait until so many calls wait here at once."""
    _waiting.append(others)
    if len(_waiting) >= others:
        _ARRIVED.set()
    await _ARRIVED.wait()
    return "met"


if __name__ == "__main__":
    _record("started")
    server.run("streamable-http")
