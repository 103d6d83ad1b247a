"""What is stored, for commands that look at it without a platform of their own."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from mcp_gateway.repository import ServerRepository
from starling.app.runtime.database import find_database
from starling.core.artifacts import ArtifactStore
from starling.core.settings import Settings
from starling.infra.postgres.artifacts import READ_ONLY, PostgresArtifacts
from starling.infra.postgres.engine import ConnectionLimits, Engine, open_engine
from starling.infra.postgres.runs.broadcast import open_broadcast
from starling.infra.postgres.runs.listing import RunFilter, RunSummary, latest_runs
from starling.infra.postgres.runs.reader import RunReader
from starling.infra.postgres.schema import check

_CONNECTIONS = 2


@dataclass(frozen=True, slots=True)
class RunRecords:
    """Runs and servers, for reading."""

    engine: Engine
    runs: RunReader
    servers: ServerRepository
    artifacts: ArtifactStore

    async def latest_runs(self, tenant: str, limit: int, which: RunFilter) -> Sequence[RunSummary]:
        """Return the latest such runs of a tenant, newest first."""
        return await latest_runs(self.engine, tenant, limit=limit, which=which)


@asynccontextmanager
async def open_records(settings: Settings) -> AsyncGenerator[RunRecords]:
    """Connect to the database that there is. Raises DatabaseUnavailableError, DatabaseUnsuitableError."""
    database = find_database(settings)
    await check(database.direct_url)
    engine = open_engine(database.url, ConnectionLimits(size=_CONNECTIONS, behind_pooler=database.behind_pooler))
    try:
        async with open_broadcast(database.direct_url) as broadcast:
            artifacts = PostgresArtifacts(engine, READ_ONLY)
            yield RunRecords(engine, RunReader(engine, broadcast), ServerRepository(engine), artifacts)
    finally:
        await engine.dispose()
