"""Connections to Postgres: SQLAlchemy's engine over psycopg 3, with a bound on every wait."""

import asyncio
import contextlib
import select
import traceback
from collections.abc import AsyncGenerator, Generator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, cast

import psycopg
from psycopg import AsyncConnection, errors
from psycopg.conninfo import make_conninfo
from psycopg.types.json import set_json_dumps
from sqlalchemy import URL, Connection, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, DisconnectionError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection as EngineConnection
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import PoolProxiedConnection
from sqlalchemy.util import greenlet_spawn

from starling.core.errors import ConfigurationError, DatabaseUnavailableError
from starling.infra.fast_json import dumps
from starling.infra.postgres.timeouts import KEEPALIVE, BoundedConnection

set_json_dumps(dumps)  # of psycopg as a whole: there is no one else here who uses it

type Engine = AsyncEngine
"""The engine, for those who only hand it on."""

_SCHEMES = ("postgresql", "postgres")
_PREPARE_AFTER = 3  # uses of a statement on one connection
# Statements find few rows by their keys, so that one plan fits all values: making it anew each time took a quarter of
# Postgres' processor time.
_PLANS = "-c plan_cache_mode=force_generic_plan -c jit=off"
_TOO_MUCH = "54"  # of a statement, whenever it is sent: the class of errors "program limit exceeded"
_ABSENCES = (  # a server that was the primary one can only be read
    psycopg.OperationalError,
    errors.IdleInTransactionSessionTimeout,
    errors.ReadOnlySqlTransaction,
)
_REMEDY = "Check that Postgres runs, that it has connections left and that DATABASE_URL is right."
_LIMITS_OF_TRANSACTION = """
SELECT set_config('statement_timeout', '{}', true), set_config('lock_timeout', '{}', true),
    set_config('idle_in_transaction_session_timeout', '{}', true)"""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """How many connections, and the longest wait for each thing, in seconds.

    `behind_pooler` says that a transaction pooler stands before Postgres (DATABASE_DIRECT_URL is set): no
    prepared statements, and the limits are set for each transaction instead of the session.
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
        """Return how long to wait for a server that doesn't keep its own limits, because it was frozen."""
        return self.statement_seconds + self.network_seconds

    @property
    def milliseconds(self) -> tuple[int, int, int]:
        """Return the limits that the server keeps: of a statement, of a lock, of an idle transaction."""
        seconds = (self.statement_seconds, self.lock_seconds, self.idle_in_transaction_seconds)
        return tuple(int(value * 1000) for value in seconds)  # pyright: ignore[reportReturnType]


_DEFAULT = ConnectionLimits()


def open_engine(url: str, limits: ConnectionLimits = _DEFAULT) -> AsyncEngine:
    """Return an engine for a `postgresql://` address; nothing is connected yet.

    Raises ConfigurationError for an address that can't be one.
    """
    engine = create_async_engine(
        _parse(url),
        connect_args={"async_creator_fn": partial(_connect, limits.answer_seconds), **arguments_of(url, limits)},
        pool_size=limits.size,
        max_overflow=0,
        pool_timeout=limits.free_seconds,
        pool_use_lifo=True,
        hide_parameters=True,
    )
    event.listen(engine.sync_engine, "checkout", _check_alive)
    if limits.behind_pooler:
        _limit_transactions(engine, limits)
    return engine


async def driver(connection: EngineConnection) -> AsyncConnection[Any]:
    """Return psycopg's connection under SQLAlchemy's, in the same transaction: for pipelines and the queue."""
    found: object = (await connection.get_raw_connection()).driver_connection
    return cast("AsyncConnection[Any]", found)


@contextlib.asynccontextmanager
async def transaction(engine: AsyncEngine) -> AsyncGenerator[AsyncConnection[Any]]:
    """Hold one of the engine's connections for one transaction in psycopg's own terms: committed at the end.

    For paths where a statement's way through SQLAlchemy would cost more than the statement.
    """
    pooled = await engine.raw_connection()
    connection = cast("AsyncConnection[Any]", pooled.driver_connection)
    try:
        yield connection
        await connection.commit()
    except BaseException:
        await _given_back(pooled, broken=True)
        raise
    await _given_back(pooled)


async def _given_back(pooled: PoolProxiedConnection, *, broken: bool = False) -> None:
    """Give a connection back to its pool; a broken one is closed instead, also where we are cancelled once more."""
    if broken:
        closing = greenlet_spawn(pooled.invalidate)
        await asyncio.shield(asyncio.get_running_loop().create_task(closing))
    await greenlet_spawn(pooled.close)


async def execute_alone(engine: AsyncEngine, statement: str, values: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Execute one statement that is a transaction by itself, and return its first row."""
    rows = await fetch_alone(engine, statement, values)
    return rows[0] if rows else None


@lru_cache(512)
def encoded(statement: str) -> bytes:
    """Return a statement as the driver wants it: for the same one the same object, whose hash is known already."""
    return statement.encode()


async def fetch_alone(engine: AsyncEngine, statement: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Execute one statement that is a transaction by itself, and return its rows.

    One round trip: what needs no BEGIN and COMMIT around it doesn't pay for them.
    """
    pooled = await engine.raw_connection()
    connection = cast("AsyncConnection[Any]", pooled.driver_connection)
    try:
        await connection.set_autocommit(True)
        rows = await (await connection.execute(encoded(statement), values)).fetchall()
        await connection.set_autocommit(False)
    except BaseException:
        await _given_back(pooled, broken=True)
        raise
    await _given_back(pooled)
    return rows


@contextlib.asynccontextmanager
async def connected(url: str, limits: ConnectionLimits = _DEFAULT) -> AsyncGenerator[AsyncConnection[Any]]:
    """Hold one connection outside any pool, in autocommit. Raises DatabaseUnavailableError, also from the block."""
    arguments = arguments_of(url, limits)
    with translated():
        async with await _connect(limits.answer_seconds, address_of(url), autocommit=True, **arguments) as connection:
            yield connection


@contextlib.contextmanager
def translated() -> Generator[None]:
    """Turn what means "Postgres is away or too slow" into DatabaseUnavailableError; let the rest through."""
    try:
        yield
    except (DBAPIError, psycopg.Error) as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        if not _is_absence(cause):
            raise
        raise DatabaseUnavailableError(f"Postgres can't be used: {first_line(cause)}.", _REMEDY) from error
    except PoolTimeoutError as error:
        raise DatabaseUnavailableError(
            "All connections to Postgres stayed in use for too long.", "Lower the number of parallel runs."
        ) from error


def _is_absence(error: BaseException | None) -> bool:
    if isinstance(error, errors.PipelineAborted):  # follows the failure that is the true one
        return False
    if isinstance(error, psycopg.Error) and (error.sqlstate or "").startswith(_TOO_MUCH):
        return False
    return isinstance(error, _ABSENCES)


def first_line(error: BaseException | None) -> str:
    """Return what an error of the driver's says, without the hints and positions that follow."""
    return str(error).strip().partition("\n")[0].rstrip(".")


async def _connect(answer_seconds: float, address: str = "", **arguments: Any) -> BoundedConnection:
    try:
        connection = await BoundedConnection.connect(address, **arguments)
    except BaseException as error:  # cancelled on the way, too: who holds a socket has Postgres wait a minute
        traceback.clear_frames(error.__traceback__)
        raise
    connection.answer_seconds = answer_seconds
    return connection


def _parse(url: str) -> URL:
    """Return the address with our driver. No message of ours repeats it: it holds a password."""
    try:
        parsed = make_url(url)
        scheme = parsed.drivername.partition("+")[0]
        given: dict[str, Any] = {**parsed.translate_connect_args(username="user", database="dbname"), **parsed.query}
        make_conninfo(**given)  # libpq's own judgement
    except (ArgumentError, ValueError, psycopg.ProgrammingError) as error:
        raise ConfigurationError("The address of Postgres can't be read.", _how_to_write(error)) from None
    if scheme not in _SCHEMES:
        raise ConfigurationError(f"{scheme!r} isn't a database that Starling can use.", _how_to_write(None))
    return parsed.set(drivername="postgresql+psycopg")


def _how_to_write(error: Exception | None) -> str:
    detail = f"{first_line(error)}. " if isinstance(error, psycopg.ProgrammingError) else ""
    return f"{detail}Write DATABASE_URL as postgresql://user:password@host:5432/database."


def address_of(url: str) -> str:
    """Return an address in libpq's own form."""
    return _parse(url).set(drivername="postgresql").render_as_string(hide_password=False)


def arguments_of(url: str, limits: ConnectionLimits) -> dict[str, Any]:
    """Return psycopg's arguments beside the address; what the address itself says about the same things goes first."""
    arguments: dict[str, Any] = {
        "application_name": "starling",
        "connect_timeout": limits.connect_seconds,
        "tcp_user_timeout": int(limits.network_seconds * 1000),
        **KEEPALIVE,
    }
    query = _parse(url).query
    arguments = {name: value for name, value in arguments.items() if name not in query}
    arguments["prepare_threshold"] = None if limits.behind_pooler else _PREPARE_AFTER
    if not limits.behind_pooler:  # poolers refuse start-up options
        statement, lock, idle = limits.milliseconds
        ours = f"-c statement_timeout={statement} -c lock_timeout={lock} -c idle_in_transaction_session_timeout={idle}"
        arguments["options"] = f"{ours} {_PLANS} {query.get('options', '')}".rstrip()
    return arguments


def _limit_transactions(engine: AsyncEngine, limits: ConnectionLimits) -> None:
    statement = _LIMITS_OF_TRANSACTION.format(*limits.milliseconds)

    def limit(connection: Connection) -> None:
        connection.exec_driver_sql(statement)

    event.listen(engine.sync_engine, "begin", limit)


def _check_alive(connection: Any, _record: object, _proxy: object) -> None:
    """Have SQLAlchemy's pool replace a connection whose server went away; where a new one has ended too, it is away."""
    found: BoundedConnection = connection.driver_connection
    if not _is_alive(found):
        raise (DisconnectionError if found.used else psycopg.OperationalError)("the server ended the connection")
    found.used = True


async def check_alive(connection: AsyncConnection[Any]) -> None:
    """Have psycopg's pool replace a connection whose server went away."""
    if not _is_alive(connection):
        await connection.close()  # one that looks idle is put back instead, and tried again until the time is up
        raise psycopg.OperationalError("the server ended the connection")


def _is_alive(connection: AsyncConnection[Any]) -> bool:
    """Whether a connection can still be used, without a round trip.

    An idle connection has nothing to read: what is readable is the end of the stream, or the server's
    farewell. Peers that vanish silently are noticed by TCP keep-alive, which ends the stream too.
    """
    return not connection.closed and not _is_readable(connection.fileno())


def _is_readable(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
