"""The rows of servers and tools. All queries of the gateway are here."""

import json
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from sqlalchemy import delete, func, select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from starling.core.json import JsonObject, digest
from starling.core.principal import SHARED
from starling.core.tools import ServerSource
from starling.infra.postgres.engine import translated
from starling.infra.postgres.runs.call_claims import CallClaims
from starling.infra.postgres.tables import configs, servers, tools
from starling.infra.postgres.tool_definitions import pinned_definitions

type Definitions = Mapping[tuple[str, str], Mapping[str, Any]]  # (server, tool) -> the definition as listed


@dataclass(frozen=True, slots=True)
class ServerRow:
    """A server as it is stored. `tools` maps names to definition hashes.

    `config` is what its source says; `tool_settings` are those that were set for single tools besides, by tool, and
    win over it.
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


@dataclass(frozen=True, slots=True)
class ListedServer:
    """A server with the definitions that its hashes stand for."""

    row: ServerRow
    definitions: Mapping[str, JsonObject]


type Changed = Callable[[AsyncConnection, Sequence[ServerRow]], Awaitable[None]]
"""Called with all servers in the transaction that changed them, before it ends."""

CACHE_CHANNEL: Final = "starling_tool_cache"  # invalidations of kept results
_ANNOUNCE = text("SELECT pg_notify(:channel, :notice)")
_ONE_AT_A_TIME = text("SELECT pg_advisory_xact_lock(hashtext('starling.servers'))")
_FIELDS = ServerRow.__slots__
_COLUMNS = tuple(servers.c[name] for name in _FIELDS)


class ServerRepository:
    """Servers and tools, and `claims` of calls. Raises DatabaseUnavailableError where Postgres is away.

    `changed` is part of each change: an epoch is made of the servers in the same transaction.
    """

    def __init__(self, engine: AsyncEngine, changed: Changed | None = None) -> None:
        self._engine = engine
        self._changed = changed
        self.claims = CallClaims(engine)

    async def announce_invalidation(self, tenant: str, tool: str) -> None:
        """Tell every process to forget the kept results that a tool had for a tenant."""
        with translated():
            async with self._engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
                await connection.execute(_ANNOUNCE, {"channel": CACHE_CHANNEL, "notice": json.dumps([tenant, tool])})

    async def servers(self) -> list[ServerRow]:
        """Return every server, by name."""
        with translated():
            async with self._engine.connect() as connection:
                return await _servers(connection)

    async def servers_and_tools(self) -> tuple[list[ServerRow], Definitions]:
        """Return every server, by name, and the current definitions of their tools."""
        with translated():
            async with self._engine.connect() as connection:
                rows = await _servers(connection)
                pins = [(row.name, name, pin) for row in rows for name, pin in row.tools.items()]
                return rows, await pinned_definitions(connection, pins)

    async def configs(self, hashes: Collection[str]) -> Mapping[str, JsonObject]:
        """Return configurations and settings of tools by hash, also of servers that were removed."""
        query = select(configs.c.hash, configs.c.config).where(configs.c.tenant == SHARED, configs.c.hash.in_(hashes))
        with translated():
            async with self._engine.connect() as connection:
                return {row.hash: row.config for row in await connection.execute(query)}

    async def change(
        self, removed: Collection[str], listed: Iterable[ListedServer], known: Sequence[ServerRow] | None = None
    ) -> bool:
        """Remove some servers and store others, in one transaction.

        False, with nothing done, where the servers aren't those `known` any more. Definitions and configurations are
        never removed: epochs pin them.
        """
        with translated():
            async with self._engine.begin() as connection:
                await connection.execute(_ONE_AT_A_TIME)
                if known is not None and await _servers(connection) != list(known):
                    return False
                await connection.execute(delete(servers).where(servers.c.tenant == SHARED, servers.c.name.in_(removed)))
                for server in listed:
                    await _save_tools(connection, server)
                    await _save_server(connection, server.row)
                if self._changed is not None:
                    await self._changed(connection, await _servers(connection))
                return True


def settings_hash(row: ServerRow) -> str:
    """Return the hash by which epochs pin the settings of a server's tools, nothing where there are none."""
    return digest(row.tool_settings) if row.tool_settings else ""


async def _servers(connection: AsyncConnection) -> list[ServerRow]:
    found = await connection.execute(select(*_COLUMNS).where(servers.c.tenant == SHARED).order_by(servers.c.name))
    return [ServerRow(*row) for row in found]


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
            "hash": server.row.tools[name],
            "definition": definition,
        }
        for name, definition in server.definitions.items()
    ]
    if values:
        await connection.execute(insert(tools).on_conflict_do_nothing(), values)
