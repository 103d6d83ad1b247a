"""The rows of servers and tools. All queries of the gateway are here."""

import json
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, cast

from sqlalchemy import Delete, Row, delete, func, select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from mcp_gateway.registration.listed_tools import definition_hash
from mcp_gateway.registration.pins import Pin, Pins
from starling.core.json import JsonObject, digest, storable_text
from starling.core.principal import SHARED
from starling.core.tools import ServerSource
from starling.infra.postgres.engine import autocommit, changing, reading
from starling.infra.postgres.runs.call_claims import CallClaims
from starling.infra.postgres.server_breakers import BreakerRepository
from starling.infra.postgres.tables.registry import configs, servers, tool_pins, tools
from starling.infra.postgres.tool_definitions import pinned_definitions

type Definitions = Mapping[tuple[str, str], Mapping[str, Any]]  # (server, tool) -> the definition as listed


@dataclass(frozen=True, slots=True)
class ServerRow:
    """A server as it is stored. `tools` maps the names of its approved tools to definition hashes.

    `config` is what its source says; `tool_settings` are those that were set for single tools besides, by tool, and
    win over it. `pins` are those that differ from `tools`: of tools that are quarantined or gone, or approved by the
    policy alone.
    """

    name: str
    config: JsonObject
    config_hash: str
    source: ServerSource
    state: Literal["ready", "degraded"]
    description: str
    tools: Mapping[str, str]
    error: str = ""
    remedy: str = ""
    tool_settings: Mapping[str, JsonObject] = field(default_factory=dict[str, JsonObject])
    pins: Pins = field(default_factory=dict[str, Pin])

    @property
    def followed(self) -> frozenset[str]:
        """The tools that the policy alone approved."""
        return frozenset(tool for tool, pin in self.pins.items() if pin.is_followed)

    @property
    def quarantined(self) -> dict[str, str]:
        """The quarantined tools, with the reasons."""
        return {tool: pin.reason for tool, pin in sorted(self.pins.items()) if pin.state == "quarantined"}


@dataclass(frozen=True, slots=True)
class ListedServer:
    """A server with the definitions that it offers, and its pins; None leaves those that are stored."""

    row: ServerRow
    definitions: Mapping[str, JsonObject]
    pins: Pins | None = None


type Changed = Callable[[AsyncConnection, Sequence[ServerRow]], Awaitable[None]]
"""Called with all servers in the transaction that changed them, before it ends."""

CACHE_CHANNEL: Final = "starling_tool_cache"  # invalidations of kept results
_ANNOUNCE = text("SELECT pg_notify(:channel, :notice)")
_ONE_AT_A_TIME = text("SELECT pg_advisory_xact_lock(hashtext('starling.servers'))")
_FIELDS = tuple(name for name in ServerRow.__slots__ if name != "pins")
_PINS = """
SELECT server, tool, approved_hash, offered_hash, state, reason, by, seen_at FROM tool_pins
WHERE tenant = :tenant AND {} ORDER BY server, tool"""
_EXCEPTIONS = text(_PINS.format("(state <> 'approved' OR by = 'policy')"))
_PINS_OF = text(_PINS.format("server = ANY(:servers)"))
_SAVE_PINS = text("""
INSERT INTO tool_pins (tenant, server, tool, approved_hash, offered_hash, state, reason, by)
SELECT :tenant, :server, * FROM unnest(
    CAST(:tools AS text[]), CAST(:approved AS text[]), CAST(:offered AS text[]), CAST(:states AS text[]),
    CAST(:reasons AS text[]), CAST(:by AS text[]))
ON CONFLICT (tenant, server, tool) DO UPDATE
SET approved_hash = excluded.approved_hash, offered_hash = excluded.offered_hash, state = excluded.state,
    reason = excluded.reason, by = coalesce(nullif(excluded.by, ''), tool_pins.by), seen_at = now()
WHERE (tool_pins.approved_hash, tool_pins.offered_hash, tool_pins.state, tool_pins.reason)
    IS DISTINCT FROM (excluded.approved_hash, excluded.offered_hash, excluded.state, excluded.reason)
    OR tool_pins.by <> excluded.by AND excluded.by <> ''""")
_COLUMNS = tuple(servers.c[name] for name in _FIELDS)


class ServerRepository:
    """Servers, tools, `claims` of calls and open `breakers`. Raises DatabaseUnavailableError where Postgres is away.

    `changed` is part of each change: an epoch is made of the servers in the same transaction.
    """

    def __init__(self, engine: AsyncEngine, changed: Changed | None = None) -> None:
        self._engine = engine
        self._changed = changed
        self.claims = CallClaims(engine)
        self.breakers = BreakerRepository(engine)

    async def announce_invalidation(self, tenant: str, tool: str) -> None:
        """Tell every process to forget the kept results that a tool had for a tenant."""
        async with autocommit(self._engine) as connection:
            await connection.execute(_ANNOUNCE, {"channel": CACHE_CHANNEL, "notice": json.dumps([tenant, tool])})

    async def servers(self) -> list[ServerRow]:
        """Return every server, by name."""
        async with reading(self._engine) as connection:
            return await _servers(connection)

    async def servers_and_tools(self) -> tuple[list[ServerRow], Definitions]:
        """Return every server, by name, and the current definitions of their tools."""
        async with reading(self._engine) as connection:
            rows = await _servers(connection)
            pins = [(row.name, name, pin) for row in rows for name, pin in row.tools.items()]
            return rows, await pinned_definitions(connection, pins)

    async def pins(self, names: Collection[str]) -> Mapping[str, Pins]:
        """Return all pins of these servers, by server, also of servers that were removed."""
        async with reading(self._engine) as connection:
            found = await connection.execute(_PINS_OF, {"tenant": SHARED, "servers": list(names)})
            return _by_server(found)

    async def definitions(self, pins: Iterable[tuple[str, str, str]]) -> Definitions:
        """Return definitions by server and tool; a pin is a server, the name of a tool and a hash."""
        async with reading(self._engine) as connection:
            return await pinned_definitions(connection, pins)

    async def configs(self, hashes: Collection[str]) -> Mapping[str, JsonObject]:
        """Return configurations and settings of tools by hash, also of servers that were removed."""
        query = select(configs.c.hash, configs.c.config).where(configs.c.tenant == SHARED, configs.c.hash.in_(hashes))
        async with reading(self._engine) as connection:
            return {row.hash: row.config for row in await connection.execute(query)}

    async def change(
        self,
        removed: Collection[str],
        listed: Iterable[ListedServer],
        known: Sequence[ServerRow] | None = None,
        *,
        forget: bool = False,
    ) -> bool:
        """Remove some servers and store others, in one transaction.

        False, with nothing done, where the servers aren't those `known` any more. Definitions and configurations are
        never removed: epochs pin them. What was approved of removed servers is kept too, unless `forget` is set.
        """
        async with changing(self._engine) as connection:
            await connection.execute(_ONE_AT_A_TIME)
            if known is not None and await _servers(connection) != list(known):
                return False
            await connection.execute(delete(servers).where(servers.c.tenant == SHARED, servers.c.name.in_(removed)))
            if forget:
                await connection.execute(_delete_pins(removed))
            for server in listed:
                await _save_tools(connection, server)
                await _save_server(connection, server.row)
                if server.pins is not None:
                    await _save_pins(connection, server.row.name, server.pins)
            if self._changed is not None:
                await self._changed(connection, await _servers(connection))
            return True


def settings_hash(row: ServerRow) -> str:
    """Return the hash by which epochs pin the settings of a server's tools, nothing where there are none."""
    return digest(row.tool_settings) if row.tool_settings else ""


async def _servers(connection: AsyncConnection) -> list[ServerRow]:
    found = await connection.execute(select(*_COLUMNS).where(servers.c.tenant == SHARED).order_by(servers.c.name))
    rows = [ServerRow(*row) for row in found]
    pins = _by_server(await connection.execute(_EXCEPTIONS, {"tenant": SHARED}))
    return [replace(row, pins=pins[row.name]) if row.name in pins else row for row in rows]


def _by_server(found: Iterable[Row[Any]]) -> dict[str, dict[str, Pin]]:
    pins: dict[str, dict[str, Pin]] = {}
    for row in found:
        server, tool, *values = cast("Sequence[Any]", row)
        pins.setdefault(server, {})[tool] = Pin(*values)
    return pins


def _delete_pins(names: Collection[str]) -> Delete:
    return delete(tool_pins).where(tool_pins.c.tenant == SHARED, tool_pins.c.server.in_(names))


async def _save_server(connection: AsyncConnection, row: ServerRow) -> None:
    pinned = {row.config_hash: row.config} | ({settings_hash(row): row.tool_settings} if row.tool_settings else {})
    kept = insert(configs).values([{"tenant": SHARED, "hash": key, "config": one} for key, one in pinned.items()])
    await connection.execute(kept.on_conflict_do_nothing())
    values = {name: getattr(row, name) for name in _FIELDS} | {"listed_at": func.now()}
    statement = insert(servers).values(tenant=SHARED, **values)
    await connection.execute(statement.on_conflict_do_update(index_elements=["tenant", "name"], set_=values))


async def _save_tools(connection: AsyncConnection, server: ListedServer) -> None:
    values = [
        {
            "tenant": SHARED,
            "server": server.row.name,
            "name": name,
            "hash": definition_hash(definition),
            "definition": definition,
        }
        for name, definition in server.definitions.items()
    ]
    if values:
        await connection.execute(insert(tools).on_conflict_do_nothing(), values)


async def _save_pins(connection: AsyncConnection, server: str, pins: Pins) -> None:
    gone = _delete_pins([server]).where(tool_pins.c.tool.not_in(list(pins)))
    await connection.execute(gone)
    values = list(pins.values())
    parameters = {
        "tools": list(pins),
        "approved": [pin.approved_hash for pin in values],
        "offered": [pin.offered_hash for pin in values],
        "states": [pin.state for pin in values],
        "reasons": [storable_text(pin.reason) for pin in values],
        "by": [pin.by for pin in values],
    }
    await connection.execute(_SAVE_PINS, {"tenant": SHARED, "server": server, **parameters})
