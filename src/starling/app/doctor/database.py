"""Postgres: whether it answers, and whether versions and schema fit."""

from collections.abc import Sequence

from starling.app.container.database import find_database
from starling.app.doctor.finding import Diagnostic, ok, problem, warning
from starling.core.errors import DatabaseUnavailableError, DatabaseUnsuitableError
from starling.core.settings.schema import Settings
from starling.infra.postgres.engine import connected
from starling.infra.postgres.schema import check as check_schema
from starling.infra.postgres.schema import current_revision

_VERSIONS = """
SELECT current_setting('server_version'), (SELECT extversion FROM pg_extension WHERE extname = 'vector')"""


async def check(settings: Settings) -> Sequence[Diagnostic]:
    """Return the versions of server, pgvector and schema. An embedded Postgres need not run."""
    try:
        database = find_database(settings)
    except DatabaseUnavailableError as error:
        return [warning("postgres", error.message, error.remedy)]
    async with connected(database.direct_url) as connection:
        row = await (await connection.execute(_VERSIONS)).fetchone()
        revision = await current_revision(connection)
    version, pgvector = row or ("unknown", None)
    try:
        await check_schema(database.direct_url)
    except DatabaseUnsuitableError as error:
        return [problem("postgres", error)]
    return [ok("postgres", f"PostgreSQL {version} answers, with pgvector {pgvector} and schema {revision}.")]
