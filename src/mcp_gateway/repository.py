"""The rows of servers and tools. All queries of the gateway are here."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import delete, func, select, tuple_
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from starling.core.json import JsonObject
from starling.core.principal import SHARED
from starling.infra.postgres.engine import translated
from starling.infra.postgres.tables import servers, tools

type Definitions = Mapping[tuple[str, str], Mapping[str, Any]]  # (server, tool) -> the definition as listed


@dataclass(frozen=True, slots=True)
class ServerRow:
    """A server as it is stored. `tools` maps names to definition hashes."""

    name: str
    config: JsonObject
    config_hash: str
    source: str
    state: Literal["ready", "degraded"]
    description: str
    tools: Mapping[str, str]
    error: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class ListedServer:
    """A server with the definitions that its hashes stand for."""

    row: ServerRow
    definitions: Mapping[str, JsonObject]


_FIELDS = ServerRow.__slots__
_COLUMNS = tuple(servers.c[name] for name in _FIELDS)


class ServerRepository:
    """Servers and tools that every tenant sees. Raises DatabaseUnavailableError where Postgres is away."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

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
                return rows, await _definitions(connection, rows)

    async def change(self, removed: Collection[str], listed: Iterable[ListedServer]) -> None:
        """Remove some servers and store others, in one transaction.

        Definitions are never removed: epochs pin them.
        """
        with translated():
            async with self._engine.begin() as connection:
                await connection.execute(delete(servers).where(servers.c.tenant == SHARED, servers.c.name.in_(removed)))
                for server in sorted(listed, key=lambda server: server.row.name):  # one order, so that nobody deadlocks
                    await _save_tools(connection, server)
                    await _save_server(connection, server.row)


async def _servers(connection: AsyncConnection) -> list[ServerRow]:
    found = await connection.execute(select(*_COLUMNS).where(servers.c.tenant == SHARED).order_by(servers.c.name))
    return [ServerRow(*row) for row in found]


async def _definitions(connection: AsyncConnection, rows: Sequence[ServerRow]) -> Definitions:
    wanted = [(row.name, name, pin) for row in rows for name, pin in row.tools.items()]
    key = tuple_(tools.c.server, tools.c.name, tools.c.hash)
    statement = select(tools.c.server, tools.c.name, tools.c.definition)
    found = await connection.execute(statement.where(tools.c.tenant == SHARED, key.in_(wanted)))
    return {(row.server, row.name): row.definition for row in found}


async def _save_server(connection: AsyncConnection, row: ServerRow) -> None:
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
