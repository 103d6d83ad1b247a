"""An MCP server with effects, for the guides: a shop that takes orders, over streamable HTTP.

It remembers the idempotency keys of its orders until it ends, so a repeated call doesn't order twice and `find_order`
can say what became of one. It takes an order of coffee at once but never answers, as a server that hangs does.

    python examples/servers/shop.py [--port 9100]
"""

import argparse
import asyncio
import socket
import sys
from typing import Any

import uvicorn
from mcp.server.fastmcp import Context, FastMCP
from mcp.types import ToolAnnotations

IDEMPOTENCY_KEY = "starling/idempotency-key"

server = FastMCP("shop", instructions="A shop: orders things, finds and refunds orders.", log_level="ERROR")
_orders: dict[str, str] = {}  # what was ordered, by the key of the call


@server.tool()
async def order(item: str, count: int, context: Context[Any, Any, Any]) -> str:
    """Order an item in the shop."""
    meta = context.request_context.meta
    key = str((meta.model_extra or {}).get(IDEMPOTENCY_KEY, "")) if meta else ""
    text = _orders.get(key) or f"order {4711 + len(_orders)}: {count} {item}"
    _orders[key or text] = text
    if item == "coffee":
        await asyncio.Event().wait()
    return text


@server.tool()
async def refund(item: str) -> str:
    """Refund an item."""
    return f"refunded {item}"


@server.tool(annotations=ToolAnnotations(readOnlyHint=True))
async def find_order(key: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Find out whether the call of `order` with this idempotency key and these arguments was done."""
    del arguments
    return {"done": key in _orders, "result": _orders.get(key, "")}


def main() -> None:
    parser = argparse.ArgumentParser(description="A shop as an MCP server, for the guides.")
    parser.add_argument("--port", type=int, default=9100, help="0 takes a free one")
    with socket.create_server(("127.0.0.1", parser.parse_args().port)) as listener:
        sys.stdout.write(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp\n")
        sys.stdout.flush()
        uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="critical")).run([listener])


if __name__ == "__main__":
    main()
