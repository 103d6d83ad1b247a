"""The oldest PostgreSQL and pgvector that Starling supports."""

from typing import Any

from psycopg import AsyncConnection

from starling.core.errors import DatabaseUnsuitableError

MINIMUM_POSTGRES = 16
MINIMUM_PGVECTOR = (0, 8, 2)  # below, an index build can corrupt memory (CVE-2026-3172)

_VERSIONS = """
SELECT current_setting('server_version_num')::int, current_setting('server_version'),
    (SELECT default_version FROM pg_available_extensions WHERE name = 'vector'),
    (SELECT extversion FROM pg_extension WHERE extname = 'vector')"""


async def check_versions(
    connection: AsyncConnection[Any],
    *,
    postgres: int = MINIMUM_POSTGRES,
    pgvector: tuple[int, ...] = MINIMUM_PGVECTOR,
) -> None:
    """Raise DatabaseUnsuitableError if the server or its pgvector is older than the minimum, or pgvector is missing."""
    row = await (await connection.execute(_VERSIONS)).fetchone()
    if row is None:
        raise LookupError("a SELECT without FROM returned no row")
    number, name, available, installed = row
    if number // 10_000 < postgres:
        raise DatabaseUnsuitableError(
            f"This Postgres is version {name}; Starling needs {postgres} or newer.",
            "Upgrade the server, point DATABASE_URL at a newer one, or unset it to use the embedded Postgres.",
        )
    _check_pgvector(available, installed, pgvector)


def _check_pgvector(available: str | None, installed: str | None, minimum: tuple[int, ...]) -> None:
    needed = ".".join(map(str, minimum))
    if available is None:
        raise DatabaseUnsuitableError(
            f"This Postgres has no pgvector; Starling needs {needed} or newer.",
            "Install the pgvector package on the database server.",
        )
    if _parsed(available) < minimum:
        raise DatabaseUnsuitableError(
            f"This Postgres has pgvector {available}; Starling needs {needed} or newer.",
            "Upgrade the pgvector package on the database server, then run ALTER EXTENSION vector UPDATE.",
        )
    if installed is not None and _parsed(installed) < minimum:
        raise DatabaseUnsuitableError(
            f"The database uses pgvector {installed}, although {available} is there; Starling needs {needed} or newer.",
            "Run ALTER EXTENSION vector UPDATE in it.",
        )


def _parsed(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
