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
_VERSIONS = """
SELECT current_setting('server_version'), (SELECT extversion FROM pg_extension WHERE extname = 'vector')"""


async def check(settings: Settings) -> Sequence[Diagnostic]:
    """Return the versions of server, pgvector and schema. An embedded Postgres need not run."""
    try:
        database = find_database(settings)
    except DatabaseUnavailableError as error:
        return [warning("postgres", error.message, error.remedy)]
    try:
        async with connected(database.direct_url) as connection:
            row = await (await connection.execute(_VERSIONS)).fetchone()
            revision = await current_revision(connection)
        await check_schema(database.direct_url)
    except DatabaseUnsuitableError as error:
        return [problem("postgres", error)]
    version, pgvector = row or ("unknown", None)
    return [ok("postgres", f"PostgreSQL {version} answers, with pgvector {pgvector} and schema {revision}.")]


async def check_clock(settings: Settings) -> Sequence[Diagnostic]:
    """Return how far the two clocks are apart, as leases use one, logs and traces the other."""
    clock = SystemClock()
    try:
        async with connected(find_database(settings).direct_url) as connection:
            before = clock.now()
            row = await (await connection.execute("SELECT clock_timestamp()")).fetchone()
            after = clock.now()
    except (DatabaseUnavailableError, DatabaseUnsuitableError):  # `check` reports that
        return []
    return [] if row is None else [clock_finding(before + (after - before) / 2, row[0])]


def clock_finding(here: datetime, there: datetime) -> Diagnostic:
    """Return the finding for the two clocks, read at the same moment."""
    seconds = abs((here - there).total_seconds())
    said = f"This clock and the database's are {seconds:.3f} s apart."
    if seconds < _MOST_SECONDS:
        return ok("clock", said)
    return Diagnostic("clock", "problem", said, "Synchronise both machines with NTP.")
