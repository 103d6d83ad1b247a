"""A well-behaved server that leaves a line in a file for each call: `recording.py <file> [http <port>]`."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from mcp.server.fastmcp import FastMCP
from mcp.types import ToolAnnotations

_FILE = Path(sys.argv[1])
_ARRIVED = asyncio.Event()
_waiting: list[int] = []

server = FastMCP(
    "recording",
    instructions="Keeps a record of every call.\n\nNothing else.",
    log_level="ERROR",
    port=int(sys.argv[3]) if len(sys.argv) > 3 else 8000,
)


def _record(text: str) -> None:
    with _FILE.open("a") as file:
        file.write(f"{text}\n")


@server.tool()
async def record(text: str) -> str:
    """Write a line."""
    _record(text)
    return f"recorded {text}"


@server.tool(annotations=ToolAnnotations(readOnlyHint=True))
async def pid() -> int:
    """Return the process id of the server."""
    return os.getpid()


@server.tool()
async def environment() -> dict[str, str]:
    """Return the environment that the server sees."""
    return dict(os.environ)


@server.tool()
async def meet(others: int) -> str:
    """Wait until so many calls wait here at once."""
    _waiting.append(others)
    if len(_waiting) >= others:
        _ARRIVED.set()
    await _ARRIVED.wait()
    return "met"


@server.tool()
async def add(first: int, second: int = 1) -> dict[str, Any]:
    """Add two whole numbers."""
    return {"sum": first + second}


if __name__ == "__main__":
    _record("started")
    server.run("streamable-http" if "http" in sys.argv else "stdio")
