"""A server that fetches web pages, as `mcp-server-fetch` does."""

import httpx
from mcp.server.fastmcp import FastMCP

server = FastMCP("fetch", log_level="WARNING")


@server.tool()
async def fetch(url: str) -> str:
    """Fetches a URL from the internet and returns its contents."""
    async with httpx.AsyncClient() as client:
        return (await client.get(url)).text


server.run()
