"""The pool of connections: SQLAlchemy's, with those beside it that the driver uses without SQLAlchemy."""

import asyncio
import select
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from time import time
from typing import Any, cast

from psycopg import AsyncConnection, Error
from psycopg.errors import ReadOnlySqlTransaction
from sqlalchemy.pool import AsyncAdaptedQueuePool, ConnectionPoolEntry, PoolProxiedConnection
from sqlalchemy.util import await_only, greenlet_spawn

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

    @asynccontextmanager
    async def autocommit(self) -> AsyncGenerator[DriverConnection]:
        """Yield a connection in autocommit mode; it is closed after an error, as what it was doing is unknown."""
        pooled = await self._taken()
        try:
            yield _driver(pooled)
        except BaseException as error:
            await release(pooled, broken=True)
            if isinstance(error, ReadOnlySqlTransaction):
                await self.replace_idle()
            raise
        if self._waiting:
            await greenlet_spawn(self._give_back, pooled)
        else:
            self._kept.append(pooled)

    async def _taken(self) -> PoolProxiedConnection:
        while self._kept:
            pooled = self._kept.pop()
            if is_alive(_driver(pooled)):
                return pooled
            await release(pooled, broken=True)
        pooled = await greenlet_spawn(self.connect)
        try:
            await self._prepare(_driver(pooled))
        except BaseException:
            await release(pooled, broken=True)
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
        """Close all connections that aren't in use."""
        while self._kept:
            self._give_back(self._kept.pop())
        super().dispose()

    async def replace_idle(self) -> None:
        """Have connections that aren't in use replaced before their next use: their server only reads."""
        while self._kept:
            await release(self._kept.pop(), broken=True)
        self._invalidate_time = time()  # SQLAlchemy replaces those that were opened before

    def _give_back(self, pooled: PoolProxiedConnection) -> None:
        """Return a connection to SQLAlchemy's part of the pool. Runs in a greenlet, as SQLAlchemy's own code does."""
        try:
            await_only(self._restore(_driver(pooled)))
        except BaseException as error:
            pooled.invalidate()
            if not isinstance(error, Error):  # cancelled
                raise
        finally:
            pooled.close()

    async def _prepare(self, connection: DriverConnection) -> None:
        await connection.set_autocommit(True)
        if self.plans_by_index:
            await connection.execute(b"SET enable_seqscan = off")

    async def _restore(self, connection: DriverConnection) -> None:
        if self.plans_by_index:
            await connection.execute(b"RESET enable_seqscan")
        await connection.set_autocommit(False)


class BehindPoolerPool(DriverPool):
    """The pool for a transaction pooler, whose sessions are shared: they keep no settings."""

    plans_by_index = False


def _driver(pooled: PoolProxiedConnection) -> DriverConnection:
    return cast("DriverConnection", pooled.driver_connection)


async def release(pooled: PoolProxiedConnection, *, broken: bool = False) -> None:
    """Return a connection to its pool; close a broken one instead, even if cancelled again meanwhile."""
    if broken:
        closing = greenlet_spawn(pooled.invalidate)
        await asyncio.shield(asyncio.get_running_loop().create_task(closing))
    await greenlet_spawn(pooled.close)


def is_alive(connection: DriverConnection) -> bool:
    """Whether a connection can still be used, without a round trip.

    An idle connection has nothing to read: a readable one has reached the end of the stream, or has the server's
    closing message. TCP keep-alive detects peers that vanish silently, and ends the stream too.
    """
    return not connection.closed and not _is_readable(connection.fileno())


def _is_readable(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
