"""The two MCP servers that benchmarks call: `benchmark_tools.py tides|library`. Equal calls have equal answers."""

import sys

from mcp.server.fastmcp import FastMCP

tides = FastMCP("tides", instructions="Tide levels of harbours.", log_level="ERROR")
library = FastMCP("library", instructions="A library's catalogue: on which shelf a book stands.", log_level="ERROR")


@tides.tool()
async def tide_level(harbour: str) -> str:
    """Return the tide level in a harbour, in metres above chart datum."""
    return f"The tide level in {harbour} is 1.4 m above chart datum, rising."


@library.tool()
async def find_shelf(title: str) -> str:
    """Return the shelf on which the book with this title stands."""
    return f"The book {title} stands on shelf 17 C."


if __name__ == "__main__":
    {"tides": tides, "library": library}[sys.argv[1]].run("stdio")
