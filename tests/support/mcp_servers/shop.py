"""The shop of the guides, over HTTP; prints its port. It takes orders of coffee, too, and never answers them."""

import asyncio
import socket
import sys
from typing import Any

import uvicorn
from mcp.server.fastmcp import FastMCP

server = FastMCP("shop", instructions="A shop: orders things.", log_level="ERROR")


@server.tool()
async def order(item: str, count: int) -> str:
    """Order an item in the shop."""
    if item == "coffee":
        await asyncio.Event().wait()
    return f"ordered {count} {item}"


@server.tool()
async def refund(item: str) -> str:
    """Refund an item."""
    return f"refunded {item}"


@server.tool()
async def find_order(key: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Say what became of an order."""
    return {"done": bool(key), "result": f"order 4711: {arguments['count']} {arguments['item']}"}


if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sys.stdout.write(f"{listener.getsockname()[1]}\n")
        sys.stdout.flush()
        uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="critical")).run([listener])
