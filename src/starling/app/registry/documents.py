"""MCP servers as `starling server list`, `server show` and the API show them."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

from mcp_gateway.configuration.servers import server_of
from mcp_gateway.registration.pins import definition_diff
from mcp_gateway.registration.repository import ServerRepository, ServerRow
from mcp_gateway.registration.server_rows import EffectiveValue, effective, known_row, row_faults, tool_values
from mcp_gateway.sessions.isolation import Isolation, ServerIsolation
from starling.core.errors import NotFoundError
from starling.core.json import strings_in
from starling.core.text_screening import hints
from starling.infra.postgres.server_breakers import StoredBreaker


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerState:
    """A server at its last listing.

    `quarantined` are tools that agents get only once they are approved, with the reasons. `isolation` is what keeps a
    stdio server from other processes and the platform's files on the machine that answers. `breakers` are the
    processes that make no calls of it now, because it failed there several times in a row.
    """

    name: str
    state: Literal["ready", "degraded"]
    source: str
    description: str
    error: str
    remedy: str
    quarantined: Mapping[str, str]
    isolation: Isolation | None
    breakers: Sequence[StoredBreaker]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSummary(ServerState):
    """A server in a list; `tools` is the number of its tools in use."""

    tools: int


@dataclass(frozen=True, slots=True)
class ServerTool:
    """A tool of a server: its effect, the hash of its definition, and the settings that were set for it by itself."""

    name: str
    effect: str
    description: str
    hash: str
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PinnedTool:
    """A tool that isn't plainly approved: `quarantined`, `gone`, or `approved` by the server's policy alone.

    `diff` compares the approved definition with the offered one; `hints` are wordings in the latter that address an
    agent, by an incomplete list. `by` made its state so: `file`, `host`, `policy`, `migration`, or the id of a key.
    """

    tool: str
    state: Literal["approved", "quarantined", "gone"]
    reason: str
    by: str
    seen_at: datetime | None
    approved_hash: str | None
    offered_hash: str | None
    diff: str
    hints: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerDetails(ServerState):
    """A server with its configuration, as written, and its tools."""

    config: Mapping[str, Any]
    tools: Sequence[ServerTool]
    pins: Sequence[PinnedTool]


@dataclass(frozen=True, slots=True)
class ToolSettings:
    """The settings of a tool: those that were set for it by itself, and all that are in effect, by name."""

    server: str
    tool: str
    hash: str
    settings: Mapping[str, Any]
    effective: Mapping[str, EffectiveValue]


@dataclass(frozen=True, slots=True)
class ServerDocuments:
    """Reads what is stored about servers."""

    servers: ServerRepository
    isolation: ServerIsolation

    async def every(self) -> Sequence[ServerSummary]:
        """Return each server with its state, by name."""
        breakers = await self.servers.breakers.by_server()
        return [
            ServerSummary(**await self._state(row, breakers.get(row.name, ())), tools=len(row.tools))
            for row in await self.servers.servers()
        ]

    async def one(self, name: str) -> ServerDetails:
        """Return a server with its configuration, as written, and its tools. Raises NotFoundError."""
        rows, definitions = await self.servers.servers_and_tools()
        row = known_row(name, rows)
        options = effective(row).options
        tools = [
            ServerTool(
                name=tool,
                effect=options.effect_of(tool).value,
                description=options.tool(tool).description or definitions[name, tool].get("description") or "",
                hash=pin,
                settings=row.tool_settings.get(tool, {}),
            )
            for tool, pin in sorted(row.tools.items())
        ]
        state = await self._state(row, (await self.servers.breakers.by_server()).get(name, ()))
        return ServerDetails(**state, config=row.config, tools=tools, pins=await self._pins(row))

    async def tool(self, name: str, tool: str) -> ToolSettings:
        """Return the settings of a tool that are in effect, each with its source. Raises NotFoundError."""
        rows, definitions = await self.servers.servers_and_tools()
        row = next((row for row in rows if row.name == name), None)
        if row is None or (tool not in row.tools and tool not in row.tool_settings):
            raise NotFoundError("tool", f"{name}.{tool}", "`starling server show SERVER` lists those of a server.")
        values = tool_values(row, tool, definitions.get((name, tool), {}))
        return ToolSettings(name, tool, row.tools.get(tool, ""), row.tool_settings.get(tool, {}), values)

    async def _pins(self, row: ServerRow) -> Sequence[PinnedTool]:
        """Return what isn't plainly approved, with the difference to what was."""
        approved = await self._definitions(row, {tool: pin.approved_hash for tool, pin in row.pins.items()})
        offered = await self._definitions(row, {tool: pin.offered_hash for tool, pin in row.pins.items()})
        return [
            PinnedTool(
                tool=tool,
                diff=definition_diff(None if pin.is_followed else approved.get(tool), offered.get(tool)),
                hints=await asyncio.to_thread(hints, strings_in(offered.get(tool, {}))),
                **asdict(pin),
            )
            for tool, pin in sorted(row.pins.items())
        ]

    async def _definitions(self, row: ServerRow, hashes: Mapping[str, str | None]) -> Mapping[str, Mapping[str, Any]]:
        found = await self.servers.definitions((row.name, tool, pin) for tool, pin in hashes.items() if pin)
        return {tool: definition for (_, tool), definition in found.items()}

    async def _state(self, row: ServerRow, breakers: Sequence[StoredBreaker]) -> dict[str, Any]:
        """Return the fields of ServerState."""
        error, remedy = row_faults(row)
        isolation = await self.isolation.of(row.name, server_of(row.config))
        stored = {name: getattr(row, name) for name in ("name", "state", "source", "description", "quarantined")}
        return stored | {"error": error, "remedy": remedy, "isolation": isolation, "breakers": breakers}
