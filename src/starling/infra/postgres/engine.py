"""Connections to Postgres: SQLAlchemy's engine over psycopg 3, with a bound on every wait."""

import contextlib
import re
import traceback
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, cast
from urllib.parse import urlsplit

import psycopg
from psycopg import AsyncConnection, errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.json import set_json_dumps
from sqlalchemy import URL, Connection, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, DisconnectionError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection as EngineConnection
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from starling.core.errors import ConfigurationError, DatabaseUnavailableError, DatabaseUnsuitableError
from starling.infra.fast_json import dumps
from starling.infra.postgres.connections import (
    KEEPALIVE,
    BehindPoolerPool,
    BoundedConnection,
    DriverPool,
    is_alive,
)

set_json_dumps(dumps)  # for psycopg as a whole: nothing else in the process uses it

type Engine = AsyncEngine
"""The engine, for modules that only pass it on."""

_SCHEMES = ("postgresql", "postgres")
_SECONDS_A_HOST = "3"  # to connect to one of several; an address may say another `connect_timeout`
_PREPARE_AFTER = 3  # uses of a statement on one connection
# Statements find few rows by key, so one plan fits all values: planning each execution took a quarter of Postgres'
# processor time.
_PLANNER_OPTIONS = "-c plan_cache_mode=force_generic_plan -c jit=off"
_PROGRAM_LIMIT_EXCEEDED = "54"  # SQLSTATE class "program limit exceeded": permanent for a statement
_UNAVAILABLE = (psycopg.OperationalError, errors.ReadOnlySqlTransaction)  # read-only: the server isn't the primary
_SESSION_ENDED = ("FATAL", "PANIC")  # severities with which the server ends the session, whatever the reason
_REMEDY = "Check that Postgres runs, has connections and disk space left, and that DATABASE_URL is right."
_ADDRESS_REMEDY = """Write DATABASE_URL as postgresql://user:password@host:5432/database. In user and password write \
@ as %40, / as %2F, : as %3A, "," as %2C, [ as %5B, ] as %5D and % as %25."""
INDEXES_ONLY = "SET LOCAL enable_seqscan = off"
"""Has the statements of a transaction read no table in full as long as an index finds the rows."""
_SET_TRANSACTION_LIMITS = """
SELECT set_config('statement_timeout', '{}', true), set_config('lock_timeout', '{}', true),
    set_config('idle_in_transaction_session_timeout', '{}', true)"""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The pool size, and the time limit of each kind of wait, in seconds.

    `behind_pooler`: a transaction pooler is in front of Postgres (DATABASE_DIRECT_URL is set). Then there are
    no prepared statements, and the limits are set for each transaction instead of the session.
    """

    size: int = 20
    free_seconds: float = 10
    connect_seconds: int = 5
    statement_seconds: float = 30
    lock_seconds: float = 10
    idle_in_transaction_seconds: float = 60
    network_seconds: float = 10
    behind_pooler: bool = False

    @property
    def answer_seconds(self) -> float:
        """Return how long to wait for a server that doesn't enforce its own limits because it is frozen."""
        return self.statement_seconds + self.network_seconds

    @property
    def milliseconds(self) -> tuple[int, int, int]:
        """Return the limits that the server enforces: statement, lock, idle transaction."""
        seconds = (self.statement_seconds, self.lock_seconds, self.idle_in_transaction_seconds)
        return tuple(int(value * 1000) for value in seconds)  # pyright: ignore[reportReturnType]


_DEFAULT = ConnectionLimits()


def open_engine(url: str, limits: ConnectionLimits = _DEFAULT) -> AsyncEngine:
    """Return an engine for a `postgresql://` address, without connecting.

    Raises ConfigurationError for an invalid address.
    """
    engine = create_async_engine(
        _parse(url),
        poolclass=BehindPoolerPool if limits.behind_pooler else DriverPool,
        connect_args={"async_creator_fn": partial(_connect, limits.answer_seconds), **arguments_of(url, limits)},
        pool_size=limits.size,
        max_overflow=0,
        pool_timeout=limits.free_seconds,
        pool_use_lifo=True,
        hide_parameters=True,
    )
    event.listen(engine.sync_engine, "checkout", _pre_ping)
    if limits.behind_pooler:
        statement = _SET_TRANSACTION_LIMITS.format(*limits.milliseconds)

        def limit_transaction(connection: Connection) -> None:
            connection.exec_driver_sql(statement)

        event.listen(engine.sync_engine, "begin", limit_transaction)
    return engine


async def driver(connection: EngineConnection) -> AsyncConnection[Any]:
    """Return the psycopg connection under SQLAlchemy's, in the same transaction: for pipelines and the queue."""
    return cast("AsyncConnection[Any]", (await connection.get_raw_connection()).driver_connection)


@contextlib.asynccontextmanager
async def transaction(engine: AsyncEngine) -> AsyncGenerator[AsyncConnection[Any]]:
    """Yield one of the engine's psycopg connections for one transaction, committed at the end.

    For paths where SQLAlchemy's overhead for a statement would exceed the cost of the statement. Raises as `reading`.
    """
    with translated(engine):
        async with _pool(engine).autocommit() as connection:
            await connection.execute(b"BEGIN")
            yield connection
            await connection.commit()


@contextlib.asynccontextmanager
async def pipelined_transaction(engine: AsyncEngine) -> AsyncGenerator[AsyncConnection[Any]]:
    """Yield what `transaction` yields, in a pipeline: statements are sent when a result is fetched, and at the end."""
    with translated(engine):
        async with _pool(engine).autocommit() as connection, connection.pipeline():
            await connection.execute(b"BEGIN")
            yield connection
            await connection.execute(b"COMMIT")


async def execute_autocommit(engine: AsyncEngine, statement: str, values: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Execute one statement that is a transaction by itself, and return its first row."""
    rows = await fetch_autocommit(engine, statement, values)
    return rows[0] if rows else None


@lru_cache(512)
def encoded(statement: str) -> bytes:
    """Return a statement as the driver takes it; equal statements give one object, whose hash is cached."""
    return statement.encode()


async def fetch_autocommit(engine: AsyncEngine, statement: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Execute one statement that is a transaction by itself, and return its rows.

    One round trip, without BEGIN and COMMIT. Raises as `reading`.
    """
    with translated(engine):
        async with _pool(engine).autocommit() as connection:
            return await (await connection.execute(encoded(statement), values)).fetchall()


def _pool(engine: AsyncEngine) -> DriverPool:
    return cast("DriverPool", engine.pool)


async def fetch_by_index(engine: AsyncEngine, statement: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Execute one statement that reads no table in full, and return its rows.

    Else the plan, and so the time, of a query for one tenant would depend on how many rows the others have.
    """
    if _pool(engine).plans_by_index:
        return await fetch_autocommit(engine, statement, values)
    async with pipelined_transaction(engine) as connection:
        await connection.execute(INDEXES_ONLY)
        cursor = await connection.execute(encoded(statement), values)
        return await cursor.fetchall()


@contextlib.asynccontextmanager
async def connected(
    url: str, limits: ConnectionLimits = _DEFAULT, name: str = "starling"
) -> AsyncGenerator[AsyncConnection[Any]]:
    """Yield one connection outside any pool, in autocommit. Raises DatabaseUnavailableError, also from the block.

    Postgres lists it by `name`.
    """
    arguments = arguments_of(url, limits, name)
    with translated():
        connection = await _connect(limits.answer_seconds, address_of(url), autocommit=True, **arguments)
        try:
            yield connection
        finally:
            await connection.close()  # psycopg's own context leaves it open if it is cancelled meanwhile


@contextlib.contextmanager
def translated(engine: AsyncEngine | None = None) -> Generator[None]:
    """Turn errors that mean "Postgres is unavailable or too slow" into DatabaseUnavailableError; raise others as is.

    The observer of the engine's failures is told.
    """
    try:
        yield
    except (DBAPIError, psycopg.Error, PoolTimeoutError) as error:
        if "unsupported startup parameter" in str(error):  # PgBouncer's words
            raise pooled_transactions() from error
        if isinstance(error, PoolTimeoutError):
            text, remedy = (
                "All connections to Postgres stayed in use for too long.",
                "Lower the number of parallel runs.",
            )
        else:
            cause = error.orig if isinstance(error, DBAPIError) else error
            if not _is_unavailable(cause):
                raise
            text, remedy = f"Postgres can't be used: {first_line(cause)}.", _REMEDY
        unavailable = DatabaseUnavailableError(text, remedy)
        if engine is not None:
            _pool(engine).on_failure(unavailable)
        raise unavailable from error


def pooled_transactions() -> DatabaseUnsuitableError:
    """Return the error where a transaction pooler is in the way to Postgres itself."""
    return DatabaseUnsuitableError(
        "DATABASE_URL leads to a transaction pooler: notifications, leases and the queue need sessions of Postgres.",
        "Set DATABASE_DIRECT_URL to the address of Postgres itself, past the pooler.",
    )


def observe_failures(engine: AsyncEngine, observer: Callable[[DatabaseUnavailableError], None]) -> None:
    """Have `observer` called with each failure of this engine's connections."""
    _pool(engine).on_failure = observer


@contextlib.asynccontextmanager
async def reading(engine: AsyncEngine) -> AsyncGenerator[EngineConnection]:
    """Give a connection for queries. Raises DatabaseUnavailableError."""
    with translated(engine):
        async with engine.connect() as connection:
            yield connection


@contextlib.asynccontextmanager
async def changing(engine: AsyncEngine) -> AsyncGenerator[EngineConnection]:
    """Give the transaction of a change, which is committed where the block ends well. Raises as `reading`."""
    with translated(engine):
        async with engine.begin() as connection:
            yield connection


@contextlib.asynccontextmanager
async def autocommit(engine: AsyncEngine) -> AsyncGenerator[EngineConnection]:
    """Give a connection of which each statement is a transaction by itself, without BEGIN. Raises as `reading`."""
    async with reading(engine) as connection:
        try:  # not by an option of the engine: SQLAlchemy loses a connection if it is cancelled while it sets that
            await connection.execution_options(isolation_level="AUTOCOMMIT")
        except BaseException:
            await connection.invalidate()  # whether it was set isn't known
            raise
        yield connection


class Repository:
    """Rows that are read and written with an engine."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    def reading(self) -> contextlib.AbstractAsyncContextManager[EngineConnection]:
        """Give a connection for queries. Raises DatabaseUnavailableError."""
        return reading(self._engine)

    def changing(self) -> contextlib.AbstractAsyncContextManager[EngineConnection]:
        """Give the transaction of a change, which is committed where the block ends well. Raises as `reading`."""
        return changing(self._engine)


def _is_unavailable(error: BaseException | None) -> bool:
    if not isinstance(error, psycopg.Error):
        return False
    if isinstance(error, errors.PipelineAborted):  # a consequence of the failure before it in the pipeline
        return False
    if (error.sqlstate or "").startswith(_PROGRAM_LIMIT_EXCEEDED):
        return False
    if type(error) is psycopg.DatabaseError and not error.sqlstate:  # libpq's own: the connection broke in an answer
        return True
    return isinstance(error, _UNAVAILABLE) or error.diag.severity_nonlocalized in _SESSION_ENDED


def first_line(error: BaseException | None) -> str:
    """Return the first line of a driver error, without the hints and positions that follow."""
    return str(error).strip().partition("\n")[0].rstrip(".")


async def _connect(answer_seconds: float, address: str = "", **arguments: Any) -> BoundedConnection:
    try:
        connection = await BoundedConnection.connect(address, **arguments)
    except BaseException as error:  # also CancelledError: Postgres waits a minute for a socket that stays open
        traceback.clear_frames(error.__traceback__)
        raise
    connection.answer_seconds = answer_seconds
    return connection


def _parse(url: str) -> URL:
    """Return the address with the psycopg driver. Error messages don't repeat it: it contains a password."""
    try:
        several = "," in urlsplit(url).netloc.rpartition("@")[2]
        parsed = _writable(_of_several_hosts(url) if several else make_url(url))
        given = _keywords(parsed)
        if "@" in given.get("host", ""):
            raise ValueError("a part of the password would be taken for the host")
    except (ArgumentError, ValueError, psycopg.ProgrammingError):  # libpq's text repeats parts of the password
        raise ConfigurationError("The address of Postgres can't be read.", _ADDRESS_REMEDY) from None
    try:
        make_conninfo(**given)  # libpq's own validation
    except psycopg.ProgrammingError as error:
        remedy = f"{first_line(error)}. {_ADDRESS_REMEDY}"
        raise ConfigurationError("The address of Postgres can't be read.", remedy) from None
    scheme = parsed.drivername.partition("+")[0]
    if scheme not in _SCHEMES:
        raise ConfigurationError(f"{scheme!r} isn't a database that Starling can use.", _ADDRESS_REMEDY)
    return parsed.set(drivername="postgresql+psycopg")


def _of_several_hosts(url: str) -> URL:
    """Return an address of the form `postgresql://user:password@a:5432,b:5432/database`, as libpq reads it."""
    scheme, _, rest = url.partition("://")
    query = {name: str(value) for name, value in conninfo_to_dict(f"postgresql://{rest}").items()}
    if not re.fullmatch(r"[\d,]*", query.get("port", "")):
        raise ValueError("a port isn't a number")
    user, password, database = (query.pop(name, None) for name in ("user", "password", "dbname"))
    return URL.create(scheme, user, password, database=database, query=query)


def _writable(parsed: URL) -> URL:
    """Return an address that leads to the one of several hosts that takes writes, unless it says which one it means.

    A host that is silent delays each new connection, so less time is given to each of several.
    """
    host = parsed.query.get("host", parsed.host or "")
    if isinstance(host, str) and "," not in host:
        return parsed
    query = {"target_session_attrs": "read-write", "connect_timeout": _SECONDS_A_HOST, **parsed.query}
    if not isinstance(host, str):  # `host=a:5432&host=b:5432`, SQLAlchemy's form, which libpq doesn't know
        places = [each.rpartition(":") if ":" in each else (each, "", "") for each in host]
        query |= {"host": ",".join(place[0] for place in places), "port": ",".join(place[2] for place in places)}
    return parsed.set(query=query)


def address_of(url: str) -> str:
    """Return an address as libpq's keywords and values: it reads `+` in a URL as itself, not as a space."""
    return make_conninfo(**_keywords(_parse(url)))


def _keywords(parsed: URL) -> dict[str, Any]:
    return {**parsed.translate_connect_args(username="user", database="dbname"), **parsed.query}


def arguments_of(url: str, limits: ConnectionLimits, name: str = "starling") -> dict[str, Any]:
    """Return psycopg's arguments beside the address; parameters in the address take precedence."""
    timeout = int(limits.network_seconds * 1000)
    arguments = beside_address(
        url, application_name=name, connect_timeout=limits.connect_seconds, tcp_user_timeout=timeout
    )
    arguments["prepare_threshold"] = None if limits.behind_pooler else _PREPARE_AFTER
    if not limits.behind_pooler:  # poolers refuse start-up options
        statement, lock, idle = limits.milliseconds
        ours = f"-c statement_timeout={statement} -c lock_timeout={lock} -c idle_in_transaction_session_timeout={idle}"
        arguments["options"] = options_before_address(url, f"{ours} {_PLANNER_OPTIONS}")
    return arguments


def options_before_address(url: str, ours: str) -> str:
    """Return the server options of a connection: ours, then those of the address, which take precedence."""
    return f"{ours} {_parse(url).query.get('options', '')}".rstrip()


def beside_address(url: str, **arguments: str | int) -> dict[str, Any]:
    """Return those of psycopg's arguments, and of those for TCP keep-alive, that the address doesn't set itself."""
    query = _parse(url).query
    return {name: value for name, value in {**arguments, **KEEPALIVE}.items() if name not in query}


def _pre_ping(connection: Any, _record: object, _proxy: object) -> None:
    """Have SQLAlchemy's pool replace a closed connection; if a new one is closed too, Postgres is unavailable."""
    found: BoundedConnection = connection.driver_connection
    if not is_alive(found):
        raise (DisconnectionError if found.used else psycopg.OperationalError)("the server ended the connection")
    found.used = True


async def check_alive(connection: AsyncConnection[Any]) -> None:
    """Have psycopg's pool replace a connection that the server closed."""
    if not is_alive(connection):
        await connection.close()  # else the pool puts it back, and tries it again until the timeout
        raise psycopg.OperationalError("the server ended the connection")
