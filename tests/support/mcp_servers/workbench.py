"""A server for tests of whole runs: `workbench.py <file> <port>`. Its tools record, meet, wait, fail and say nothing.

What it does is asked for by argument, so that one process serves many tests.
"""

import asyncio
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from mcp.server.fastmcp import FastMCP

_FILE, _PORT = Path(sys.argv[1]), int(sys.argv[2])
_arrived: Counter[str] = Counter()
_gates: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

server = FastMCP("workbench", instructions="A bench with simple tools.", log_level="CRITICAL", port=_PORT)


def _note(text: str) -> None:
    with _FILE.open("a") as file:
        file.write(f"{text}\n")


@server.tool()
async def look(thing: str) -> str:
    """Look at a thing."""
    _note(f"look {thing}")
    return f"the {thing} is fine"


@server.tool()
async def change(thing: str) -> str:
    """Change a thing."""
    _note(f"change {thing}")
    return f"the {thing} is changed"


@server.tool()
async def measure(thing: str, size: int) -> dict[str, Any]:
    """Measure a thing."""
    _note(f"measure {thing}")
    return {"thing": thing, "size": size, "of": {"unit": "cm"}}


@server.tool()
async def meet(place: str, others: int) -> str:
    """Wait until so many calls wait at a place at once."""
    _note(f"meet {place}")
    _arrived[place] += 1
    if _arrived[place] >= others:
        _gates[place].set()
    await _gates[place].wait()
    return f"met at {place}"


@server.tool()
async def wait(place: str) -> str:
    """Wait until somebody passes there."""
    _note(f"wait {place}")
    await _gates[place].wait()
    return f"waited at {place}"


@server.tool()
async def go(place: str) -> str:
    """Let go everybody who waits at a place."""
    _gates[place].set()
    return "gone"


@server.tool()
async def fail(why: str) -> str:
    """Fail, always."""
    _note(f"fail {why}")
    raise ValueError(why)


@server.tool(structured_output=False)
async def silence() -> None:
    """Say nothing."""
    _note("silence")


if __name__ == "__main__":
    server.run("streamable-http")
