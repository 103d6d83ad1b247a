"""The schema's version: upgrade under a lock, and the range that this version can use."""

import re
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from psycopg import AsyncConnection, errors
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from starling.core.errors import DatabaseUnavailableError, DatabaseUnsuitableError
from starling.infra.postgres.engine import (
    ConnectionLimits,
    changing,
    connected,
    driver,
    first_line,
    open_engine,
    pooled_transactions,
)

COMPATIBLE_FROM: Final = "0018"
"""Versions of Starling whose newest revision is this or later can use a database at our newest one. A revision that
removes or narrows something raises it."""

_LOCK = 0x7374_6172_6C69_6E67  # "starling": the advisory lock that a migration holds
_NOTE: Final = f"COMMENT ON TABLE alembic_version IS 'compatible from {COMPATIBLE_FROM}'"
_COMPATIBLE = re.compile(r"compatible from (\d+)")
_STATE = "SELECT version_num, obj_description('alembic_version'::regclass, 'pg_class') FROM alembic_version"
_SESSION = "SELECT coalesce(current_setting('starling.session', true) = 'own', false)"
_MIGRATION_LIMITS = ConnectionLimits(size=1, statement_seconds=600, lock_seconds=120, idle_in_transaction_seconds=600)


@dataclass(frozen=True, slots=True)
class SchemaState:
    """The revision of a database, None without our tables, and the oldest one whose versions can use it, if noted."""

    revision: str | None
    compatible_from: str | None


async def upgrade(url: str) -> str:
    """Bring the database at `url` to our newest revision; return the revision that it has then.

    A newer one that we can use stays as it is. Safe to run from many processes at once. Raises
    DatabaseUnsuitableError if the server is too old, the schema too new for us, or pgvector may not be installed;
    DatabaseUnavailableError if Postgres can't be reached.
    """
    async with connected(url) as connection:
        await _check_session(connection, url)
        await check_versions(connection)
        found = await _state(connection)
        if found.revision == revisions()[-1] and found.compatible_from is None:  # restored from a dump without comments
            with suppress(errors.InsufficientPrivilege):
                await connection.execute(_NOTE)
    if _is_older(found):
        found = await _migrate(url)
    _refuse_too_new(found)
    return str(found.revision)


async def check(url: str) -> None:
    """Raise DatabaseUnsuitableError unless the server and the schema at `url` suit this version of Starling."""
    async with connected(url) as connection:
        await _check_session(connection, url)
        await check_versions(connection)
        found = await _state(connection)
    if _is_older(found):
        has = "no schema of Starling" if found.revision is None else f"schema {found.revision}"
        raise DatabaseUnsuitableError(
            f"The database has {has}; this Starling needs {revisions()[-1]}.", "Run `starling db upgrade`."
        )
    _refuse_too_new(found)


async def current_revision(connection: AsyncConnection[Any]) -> str | None:
    """Return the revision of the schema, None for a database without ours. The connection is in autocommit."""
    return (await _state(connection)).revision


async def _state(connection: AsyncConnection[Any]) -> SchemaState:
    try:
        async with connection.transaction():  # so that a transaction around it survives the error
            row = await (await connection.execute(_STATE)).fetchone()
    except errors.UndefinedTable:
        row = None
    except errors.InsufficientPrivilege as error:
        raise DatabaseUnsuitableError(
            f"The database's user may not use Starling's tables: {first_line(error)}.",
            "Have it own all of them: restore dumps as this user, or ALTER TABLE … OWNER TO it.",
        ) from error
    if row is None:
        return SchemaState(None, None)
    noted = _COMPATIBLE.fullmatch(row[1] or "")
    return SchemaState(str(row[0]), noted[1] if noted else None)


@cache
def revisions() -> tuple[str, ...]:
    """Return our revisions, oldest first: file names start with them, so that Alembic needn't be imported."""
    return tuple(sorted(file.name.partition("_")[0] for file in (migrations_folder() / "versions").glob("[0-9]*.py")))


def migrations_folder() -> Path:
    """Return where the migrations are: inside the installed package, or at the top of a checkout."""
    package = Path(__file__).parents[2]
    installed = package / "migrations"
    return installed if installed.is_dir() else package.parents[1] / "migrations"


async def _check_session(connection: AsyncConnection[Any], url: str) -> None:
    """Raise DatabaseUnsuitableError where other clients get the session of this connection, too."""
    row = await (await connection.execute("SELECT pg_backend_pid()")).fetchone()
    if row == (connection.info.backend_pid,):  # a pooler gives clients a number of its own
        return
    async with connected(url) as other:
        await connection.execute("SELECT set_config('starling.session', 'own', false)")
        seen = [await (await each.execute(_SESSION)).fetchone() for each in (other, connection)]
    if seen != [(False,), (True,)]:
        raise pooled_transactions()


def _is_older(found: SchemaState) -> bool:
    return found.revision in (None, *revisions()[:-1])


def _refuse_too_new(found: SchemaState) -> None:
    """Refuse a revision that we don't know, unless the version that made it noted that ours can use it."""
    newest = revisions()[-1]
    if found.revision in revisions() or (found.compatible_from is not None and found.compatible_from <= newest):
        return
    limit = "" if found.compatible_from is None else f" It can be used from schema {found.compatible_from} on."
    raise DatabaseUnsuitableError(
        f"The database has schema {found.revision}, which this Starling, at {newest}, doesn't know.{limit}",
        "It is older than the database: install the newer Starling.",
    )


async def _migrate(url: str) -> SchemaState:
    """Upgrade the schema, unless another version has brought it to ours or a later one meanwhile; return its state."""
    engine = open_engine(url, _MIGRATION_LIMITS)
    try:
        async with changing(engine) as connection:
            await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
            session = await driver(connection)
            found = await _state(session)
            if _is_older(found):
                await connection.run_sync(_run_alembic)
                await connection.execute(text(_NOTE))
                found = await _state(session)
            return found
    except DatabaseUnavailableError as error:
        if not isinstance(getattr(error.__cause__, "orig", None), errors.LockNotAvailable):
            raise
        raise DatabaseUnavailableError(
            f"The schema was not upgraded: others held a lock for {_MIGRATION_LIMITS.lock_seconds:g} s.",
            "Another `starling db upgrade` or an open transaction has it: run this again when that has ended.",
        ) from error
    except DBAPIError as error:
        if not isinstance(error.orig, errors.InsufficientPrivilege):
            raise
        raise DatabaseUnsuitableError(
            f"The database's user may not set it up: {first_line(error.orig)}.",
            "Have an administrator run CREATE EXTENSION vector in this database and grant CREATE on its schema.",
        ) from error
    finally:
        await engine.dispose()


def _run_alembic(connection: Connection) -> None:
    from alembic import command
    from alembic import config as configuration

    config = configuration.Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    command.upgrade(config, "head")


MINIMUM_POSTGRES = 16
MINIMUM_PGVECTOR = (0, 8, 2)  # below, an index build can corrupt memory (CVE-2026-3172)

_VERSIONS = """
SELECT current_setting('server_version_num')::int, current_setting('server_version'),
    (SELECT default_version FROM pg_available_extensions WHERE name = 'vector'),
    (SELECT extversion FROM pg_extension WHERE extname = 'vector')"""


async def check_versions(connection: AsyncConnection[Any]) -> None:
    """Raise DatabaseUnsuitableError if the server or its pgvector is older than the minimum, or pgvector is missing."""
    row = await (await connection.execute(_VERSIONS)).fetchone()
    assert row is not None
    number, name, available, installed = row
    if number // 10_000 < MINIMUM_POSTGRES:
        raise DatabaseUnsuitableError(
            f"This Postgres is version {name}; Starling needs {MINIMUM_POSTGRES} or newer.",
            "Upgrade the server, point DATABASE_URL at a newer one, or unset it to use the embedded Postgres.",
        )
    needed = ".".join(map(str, MINIMUM_PGVECTOR))
    if available is None:
        raise DatabaseUnsuitableError(
            f"This Postgres has no pgvector; Starling needs {needed} or newer.",
            "Install the pgvector package on the database server.",
        )
    if _parsed(available) < MINIMUM_PGVECTOR:
        raise DatabaseUnsuitableError(
            f"This Postgres has pgvector {available}; Starling needs {needed} or newer.",
            "Upgrade the pgvector package on the database server, then run ALTER EXTENSION vector UPDATE.",
        )
    if installed is not None and _parsed(installed) < MINIMUM_PGVECTOR:
        raise DatabaseUnsuitableError(
            f"The database uses pgvector {installed}, although {available} is there; Starling needs {needed} or newer.",
            "Run ALTER EXTENSION vector UPDATE in it.",
        )


def _parsed(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
