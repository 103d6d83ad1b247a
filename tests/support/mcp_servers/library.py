"""A server that shows what a library has: `library.py books films …` has a tool for each of these words."""

import sys
from collections.abc import Callable

from mcp.server.fastmcp import FastMCP

server = FastMCP("library", log_level="WARNING")


def _shown(thing: str) -> Callable[[], str]:
    def show() -> str:
        return f"All {thing} are there."

    return show


if __name__ == "__main__":
    for each in sys.argv[1:]:
        server.add_tool(_shown(each), name=f"show_{each}", description=f"Show the {each} of the library.")
    server.run()
