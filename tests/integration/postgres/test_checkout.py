"""Connections that the server ends before anybody has used them."""

import select
from typing import Any

import psycopg
import pytest
from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.core.errors import DatabaseUnavailableError
from starling.infra.postgres.engine import translated


async def test_a_server_that_ends_even_new_connections_is_away(engine: AsyncEngine, database_url: str) -> None:
    def end(connection: Any, _: object) -> None:
        ours: psycopg.AsyncConnection[Any] = connection.driver_connection
        with psycopg.connect(database_url, autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s)", [ours.info.backend_pid])
        select.select([ours.fileno()], [], [])

    event.listen(engine.sync_engine, "connect", end)
    with pytest.raises(DatabaseUnavailableError, match="ended the connection"), translated():
        await engine.connect()
    event.remove(engine.sync_engine, "connect", end)

    async with engine.connect() as connection:
        assert (await connection.execute(text("SELECT 1"))).scalar_one() == 1
