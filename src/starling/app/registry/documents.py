"""MCP servers as JSON documents, as `starling server list --json`, `server show --json` and the API give them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mcp_gateway.configuration.servers import server_of
from mcp_gateway.registration.definition_diff import definition_diff
from mcp_gateway.registration.effective_config import effective, row_faults, tool_values
from mcp_gateway.registration.repository import ServerRepository, ServerRow
from mcp_gateway.sessions.isolation import ServerIsolation
from starling.core.errors import NotFoundError
from starling.infra.postgres.server_breakers import StoredBreaker


@dataclass(frozen=True, slots=True)
class ServerDocuments:
    """Reads what is stored about servers."""

    servers: ServerRepository
    isolation: ServerIsolation

    async def every(self) -> Sequence[Mapping[str, Any]]:
        """Return name, state, description, error, isolation, quarantined tools and open breakers of each server."""
        breakers = await self.servers.breakers.by_server()
        rows = await self.servers.servers()
        summaries = [await self._summary(row, breakers.get(row.name, ())) for row in rows]
        return [summary | {"description": row.description} for summary, row in zip(summaries, rows, strict=True)]

    async def one(self, name: str) -> Mapping[str, Any]:
        """Return a server with its configuration, as written, and its tools. Raises NotFoundError."""
        rows, definitions = await self.servers.servers_and_tools()
        row = next((row for row in rows if row.name == name), None)
        if row is None:
            raise NotFoundError("server", name, f"Known are: {', '.join(row.name for row in rows) or 'none'}.")
        options = effective(row).options
        tools = [
            {
                "name": tool,
                "effect": options.effect_of(tool).value,
                "description": options.tool(tool).description or definitions[name, tool].get("description") or "",
                "hash": pin,
                "settings": row.tool_settings.get(tool, {}),
            }
            for tool, pin in sorted(row.tools.items())
        ]
        details = {"description": row.description, "config": row.config, "tools": tools}
        breakers = (await self.servers.breakers.by_server()).get(name, ())
        return await self._summary(row, breakers) | details | {"pins": await self._pins(row)}

    async def _pins(self, row: ServerRow) -> list[dict[str, Any]]:
        """Return what isn't plainly approved, with the difference to what was."""
        approved = await self._definitions(row, {tool: pin.approved_hash for tool, pin in row.pins.items()})
        offered = await self._definitions(row, {tool: pin.offered_hash for tool, pin in row.pins.items()})
        return [
            {
                "tool": tool,
                "state": pin.state,
                "reason": pin.reason,
                "by": pin.by,
                "seen_at": pin.seen_at,
                "approved_hash": pin.approved_hash,
                "offered_hash": pin.offered_hash,
                "diff": definition_diff(None if pin.is_followed else approved.get(tool), offered.get(tool)),
            }
            for tool, pin in sorted(row.pins.items())
        ]

    async def _definitions(self, row: ServerRow, hashes: Mapping[str, str | None]) -> Mapping[str, Mapping[str, Any]]:
        found = await self.servers.definitions((row.name, tool, pin) for tool, pin in hashes.items() if pin)
        return {tool: definition for (_, tool), definition in found.items()}

    async def tool(self, name: str, tool: str) -> Mapping[str, Any]:
        """Return the settings of a tool that are in effect, each with its source. Raises NotFoundError."""
        rows, definitions = await self.servers.servers_and_tools()
        row = next((row for row in rows if row.name == name), None)
        if row is None or (tool not in row.tools and tool not in row.tool_settings):
            raise NotFoundError("tool", f"{name}.{tool}", "`starling server show SERVER` lists those of a server.")
        values = tool_values(row, tool, definitions.get((name, tool), {}))
        return {
            "server": name,
            "tool": tool,
            "hash": row.tools.get(tool, ""),
            "settings": row.tool_settings.get(tool, {}),
            "effective": {key: {"value": found.value, "source": found.source} for key, found in values.items()},
        }

    async def _summary(self, row: ServerRow, breakers: Iterable[StoredBreaker]) -> dict[str, Any]:
        error, remedy = row_faults(row)
        return {
            "name": row.name,
            "state": row.state,
            "tools": len(row.tools),
            "source": row.source,
            "error": error,
            "remedy": remedy,
            "quarantined": row.quarantined,
            "isolation": await self.isolation.of(row.name, server_of(row.config)),
            "breakers": [asdict(breaker) for breaker in breakers],
        }
