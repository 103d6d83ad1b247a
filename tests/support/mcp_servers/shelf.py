"""A server whose searches find nothing; each says so in another way. Run it over stdio."""

from mcp.server.fastmcp import FastMCP

server = FastMCP("shelf", instructions="Searches of a library.", log_level="CRITICAL")


def add_search(kind: str, found: object) -> None:
    async def search(words: str) -> object:
        return found

    server.add_tool(search, f"search_{kind}", description=f"Search the {kind} for words.", structured_output=False)


FOUND: dict[str, object] = {"books": [], "maps": None, "films": "[]", "songs": {"items": [], "total": 0}}
for kind, found in FOUND.items():
    add_search(kind, found)
server.run()
