"""The schema's version: upgrade under a lock, and check."""

from functools import cache
from pathlib import Path
from typing import Any

from psycopg import AsyncConnection, errors
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from starling.core.errors import DatabaseUnsuitableError
from starling.infra import deferred
from starling.infra.postgres.engine import ConnectionLimits, connected, first_line, open_engine, translated
from starling.infra.postgres.version_requirements import check_versions

_LOCK = 0x7374_6172_6C69_6E67  # "starling": the advisory lock that a migration holds
_MIGRATION_LIMITS = ConnectionLimits(size=1, statement_seconds=600, lock_seconds=120, idle_in_transaction_seconds=600)


async def upgrade(url: str) -> str:
    """Bring the database at `url` to our newest revision and return it. Safe to run from many processes at once.

    Raises DatabaseUnsuitableError if the server is too old, the schema newer than ours, or pgvector may
    not be installed; DatabaseUnavailableError if Postgres can't be reached.
    """
    async with connected(url) as connection:
        await check_versions(connection)
        current = await current_revision(connection)
    if current != revisions()[-1]:
        _refuse_newer(current)
        await _migrate(url)
    return revisions()[-1]


async def check(url: str) -> None:
    """Raise DatabaseUnsuitableError unless the server and the schema at `url` suit this version of Starling."""
    async with connected(url) as connection:
        await check_versions(connection)
        current = await current_revision(connection)
    _refuse_newer(current)
    if current != revisions()[-1]:
        raise DatabaseUnsuitableError(
            f"The database has schema {current or 'none'}; this Starling needs {revisions()[-1]}.",
            "Run `starling db upgrade`.",
        )


async def current_revision(connection: AsyncConnection[Any]) -> str | None:
    """Return the revision of the schema, None for a database without ours. The connection is in autocommit."""
    try:
        row = await (await connection.execute("SELECT version_num FROM alembic_version")).fetchone()
    except errors.UndefinedTable:
        return None
    return None if row is None else str(row[0])


@cache
def revisions() -> tuple[str, ...]:
    """Return our revisions, oldest first: file names start with them, so that Alembic needn't be imported."""
    return tuple(sorted(file.name.partition("_")[0] for file in (migrations_folder() / "versions").glob("[0-9]*.py")))


def migrations_folder() -> Path:
    """Return where the migrations are: inside the installed package, or at the top of a checkout."""
    package = Path(__file__).parents[2]
    installed = package / "migrations"
    return installed if installed.is_dir() else package.parents[1] / "migrations"


def _refuse_newer(current: str | None) -> None:
    if current is not None and current not in revisions():
        raise DatabaseUnsuitableError(
            f"The database has schema {current}, which this Starling, at {revisions()[-1]}, doesn't know.",
            "It is older than the database: install the newer Starling.",
        )


async def _migrate(url: str) -> None:
    engine = open_engine(url, _MIGRATION_LIMITS)
    try:
        with translated():
            async with engine.begin() as connection:
                await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
                await connection.run_sync(_run_alembic)
    except DBAPIError as error:
        if not isinstance(error.orig, errors.InsufficientPrivilege):
            raise
        raise DatabaseUnsuitableError(
            f"The database's user may not set it up: {first_line(error.orig)}.",
            "Have an administrator run CREATE EXTENSION vector in it and grant CREATE on its schema.",
        ) from error
    finally:
        await engine.dispose()


def _run_alembic(connection: Connection) -> None:
    command, configuration = deferred.alembic()
    config = configuration.Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    command.upgrade(config, "head")
