"""Connections with a time limit for each answer, and their pool.

A frozen server enforces neither its own limits nor those of TCP. The pool is SQLAlchemy's, with connections beside it
that the driver uses without SQLAlchemy.
"""

import select
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from math import inf
from time import monotonic, time
from typing import Any, Final, cast

from psycopg import AsyncConnection, Connection, Error, OperationalError
from psycopg.abc import PQGen
from psycopg.errors import ReadOnlySqlTransaction
from sqlalchemy.pool import AsyncAdaptedQueuePool, ConnectionPoolEntry, PoolProxiedConnection
from sqlalchemy.util import await_only, greenlet_spawn

from starling.core.errors import DatabaseUnavailableError

KEEPALIVE: Final[dict[str, Any]] = {"keepalives_idle": 30, "keepalives_interval": 5, "keepalives_count": 3}
_ANSWER_SECONDS: ContextVar[float] = ContextVar("starling_answer_seconds", default=inf)
_INTERVAL = 0.1  # psycopg's default: how often a wait is interrupted


@contextmanager
def answers_within(seconds: float) -> Generator[None]:
    """Wait at most so long for each answer in the block and in tasks begun there, where a connection waits longer."""
    before = _ANSWER_SECONDS.set(seconds)
    try:
        yield
    finally:
        _ANSWER_SECONDS.reset(before)


class BoundedConnection(AsyncConnection[Any]):
    """Waits `answer_seconds` for each answer; then it is closed, and OperationalError is raised.

    It is also closed where the server only reads: the address may lead to another server by now.
    """

    answer_seconds = 40.0
    used = False  # since it was opened

    async def wait[T](
        self,
        gen: PQGen[T],
        interval: float = _INTERVAL,
        timeout: float | None = None,  # noqa: ASYNC109 - the base class has it
    ) -> T:
        """Consume one of psycopg's generators; an explicit `timeout` replaces `answer_seconds`."""
        if timeout is not None:
            return await super().wait(gen, interval, timeout)
        begun, seconds = monotonic(), min(self.answer_seconds, _ANSWER_SECONDS.get())
        try:
            return await super().wait(gen, interval, seconds)
        except ReadOnlySqlTransaction:
            self.pgconn.finish()
            raise
        except OperationalError:
            if monotonic() - begun < seconds:
                raise
            self.pgconn.finish()  # a late answer would be read as the answer to the next statement
            raise OperationalError(f"no answer within {seconds:g} s") from None


class BoundedThreadConnection(Connection[Any]):
    """The synchronous form of BoundedConnection."""

    answer_seconds = 40.0

    def wait[T](self, gen: PQGen[T], interval: float = _INTERVAL, timeout: float | None = None) -> T:
        """Consume one of psycopg's generators."""
        if timeout is not None:
            return super().wait(gen, interval, timeout)
        begun = monotonic()
        try:
            return super().wait(gen, interval, self.answer_seconds)
        except OperationalError:
            if monotonic() - begun < self.answer_seconds:
                raise
            self.pgconn.finish()
            raise OperationalError(f"no answer within {self.answer_seconds:g} s") from None


type DriverConnection = AsyncConnection[Any]


class DriverPool(AsyncAdaptedQueuePool):
    """SQLAlchemy's pool, which keeps connections in autocommit mode for direct use by the driver.

    A checkout from SQLAlchemy and its mode changes take longer than a short statement. So a connection that was used
    directly stays checked out for the next direct use. It goes back when SQLAlchemy would open one more or let a caller
    wait, and right after its use while a caller waits.
    """

    plans_by_index = True  # direct statements read no table in full where an index can be used

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._kept: list[PoolProxiedConnection] = []
        self._waiting = 0  # checkouts that have no connection yet
        self._disposed = False
        self.on_failure: Callable[[DatabaseUnavailableError], None] = lambda _: None

    @asynccontextmanager
    async def autocommit(self) -> AsyncGenerator[DriverConnection]:
        """Yield a connection in autocommit mode; it is closed after an error, as what it was doing is unknown."""
        pooled = await self._taken()
        try:
            yield _driver(pooled)
        except BaseException as error:
            await _discard(pooled)
            if isinstance(error, ReadOnlySqlTransaction):
                await self.replace_idle()
            raise
        if self._disposed:
            await _discard(pooled)
        elif self._waiting:
            await greenlet_spawn(self._give_back, pooled)
        else:
            self._kept.append(pooled)

    async def _taken(self) -> PoolProxiedConnection:
        while self._kept:
            pooled = self._kept.pop()
            if is_alive(_driver(pooled)):
                return pooled
            await _discard(pooled)
        pooled = await greenlet_spawn(self.connect)
        try:
            await _driver(pooled).set_autocommit(True)
            if self.plans_by_index:
                await _driver(pooled).execute(b"SET enable_seqscan = off")
        except BaseException:
            await _discard(pooled)
            raise
        return pooled

    def _do_get(self) -> ConnectionPoolEntry:
        if self._kept and not self.checkedin():
            self._give_back(self._kept.pop(0))
        self._waiting += 1
        try:
            return super()._do_get()
        finally:
            self._waiting -= 1

    def dispose(self) -> None:
        """Close all connections that aren't in use; each of the others is closed after its use."""
        self._disposed = True
        while self._kept:
            self._give_back(self._kept.pop())
        super().dispose()

    async def replace_idle(self) -> None:
        """Have connections that aren't in use replaced before their next use: their server only reads."""
        while self._kept:
            await _discard(self._kept.pop())
        self._invalidate_time = time()  # SQLAlchemy replaces those that were opened before

    def _give_back(self, pooled: PoolProxiedConnection) -> None:
        """Return a connection to SQLAlchemy's part of the pool. Runs in a greenlet, as SQLAlchemy's own code does."""
        try:
            if self.plans_by_index:
                await_only(_driver(pooled).execute(b"RESET enable_seqscan"))
            await_only(_driver(pooled).set_autocommit(False))
        except BaseException as error:
            pooled.invalidate()
            if not isinstance(error, Error):  # cancelled
                raise
        finally:
            pooled.close()


class BehindPoolerPool(DriverPool):
    """The pool for a transaction pooler, whose sessions are shared: they keep no settings."""

    plans_by_index = False


def _driver(pooled: PoolProxiedConnection) -> DriverConnection:
    return cast("DriverConnection", pooled.driver_connection)


async def _discard(pooled: PoolProxiedConnection) -> None:
    """Close a connection. It waits for nothing, so it can't be cancelled."""
    await greenlet_spawn(pooled.invalidate)


def is_alive(connection: DriverConnection) -> bool:
    """Whether a connection can still be used, without a round trip.

    An idle connection has nothing to read: a readable one has reached the end of the stream, or has the server's
    closing message. TCP keep-alive detects peers that vanish silently, and ends the stream too.
    """
    if connection.closed:
        return False
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return not poll.poll(0)
