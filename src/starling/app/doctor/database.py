"""Postgres: whether it answers, whether versions and schema fit, and the skew between its clock and ours."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from starling.app.container.database import find_database
from starling.core.clock import SystemClock
from starling.core.diagnostics import Diagnostic, ok, problem, warning
from starling.core.errors import DatabaseUnavailableError, DatabaseUnsuitableError
from starling.core.settings.schema import Settings
from starling.infra.postgres.engine import connected
from starling.infra.postgres.schema import check as check_schema
from starling.infra.postgres.schema import current_revision

_MOST_SECONDS: Final = 2.0  # of skew
_FACTS = """
SELECT current_setting('server_version'), (SELECT extversion FROM pg_extension WHERE extname = 'vector'),
       clock_timestamp()"""


async def check(settings: Settings) -> Sequence[Diagnostic]:
    """Return the versions of server, pgvector and schema, and how far its clock and ours are apart.

    Leases use one of the clocks, logs and traces the other. An embedded Postgres need not run.
    """
    clock = SystemClock()
    try:
        database = find_database(settings)
    except DatabaseUnavailableError as error:
        return [warning("postgres", error.message, error.remedy)]
    try:
        async with connected(database.direct_url) as connection:
            before = clock.now()
            row = await (await connection.execute(_FACTS)).fetchone()
            after = clock.now()
            revision = await current_revision(connection)
        await check_schema(database.direct_url)
    except DatabaseUnsuitableError as error:
        return [problem("postgres", error)]
    assert row is not None
    version, pgvector, there = row
    said = f"PostgreSQL {version} answers, with pgvector {pgvector} and schema {revision}."
    return [ok("postgres", said), clock_finding(before + (after - before) / 2, there)]


def clock_finding(here: datetime, there: datetime) -> Diagnostic:
    """Return the finding for the two clocks, read at the same moment."""
    seconds = abs((here - there).total_seconds())
    said = f"This clock and the database's are {seconds:.3f} s apart."
    if seconds < _MOST_SECONDS:
        return ok("clock", said)
    return Diagnostic("clock", "problem", said, "Synchronise both machines with NTP.")
