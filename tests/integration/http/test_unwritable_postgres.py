"""A Postgres that is frozen, or that only reads: requests fail in time, and `/ready` says so."""

from pathlib import Path
from typing import Any

import pytest
from psycopg import AsyncConnection
from sqlalchemy.ext.asyncio import AsyncEngine
from starlette.types import Receive, Scope, Send

from starling.app.http.request_telemetry import TelemetryMiddleware
from starling.app.telemetry.metrics import Metrics
from starling.core.errors import DatabaseUnavailableError
from starling.infra.postgres.engine import execute_autocommit, translated
from tests.integration.http.conftest import running_api
from tests.support.postgres_faults import terminate_backends


async def execute(url: str, statement: str) -> None:
    options = "-c default_transaction_read_only=off"
    async with await AsyncConnection.connect(url, autocommit=True, options=options) as connection:
        await connection.execute(statement.encode())


async def test_query_of_a_request_that_postgres_does_not_answer_is_given_up(engine: AsyncEngine) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        with translated():
            await execute_autocommit(engine, "SELECT pg_sleep(30)", {})

    async def unused() -> dict[str, str]:
        return {}

    async def ignored(message: object) -> None:
        del message

    request: dict[str, Any] = {"type": "http", "method": "GET", "path": "/", "headers": []}
    with pytest.raises(DatabaseUnavailableError, match="no answer within"):
        await TelemetryMiddleware(app, Metrics(), answer_seconds=0.2)(request, unused, ignored)


async def test_platform_whose_postgres_only_reads_is_not_ready(database_url: str, tmp_path: Path) -> None:
    async with running_api(database_url, tmp_path, {}) as api:
        name = database_url.rpartition("/")[2].partition("?")[0]
        await execute(database_url, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        await terminate_backends(database_url)
        async with api.client.get("/ready") as response:
            status = response.status
        await execute(database_url, f"ALTER DATABASE {name} RESET ALL")

    assert status == 503
