"""A bell that the database rings in every process: NOTIFY, with a slow poll as the net under it."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from typing import Any

from psycopg import AsyncConnection, OperationalError
from psycopg.sql import SQL, Identifier

from starling.infra.postgres.timeouts import KEEPALIVE

_RECONNECT_SECONDS = 1.0
_log = logging.getLogger(__name__)


async def rings(url: str, channel: str, *, at_least_every: float) -> AsyncGenerator[bool]:
    """Yield True at each notice on a channel and whenever listening begins, False after so many silent seconds.

    `url` must reach Postgres itself, not a transaction pooler. A lost connection is opened again, for ever: at once
    the first time, since what counts on the bell is late meanwhile.
    """
    while True:
        listened = False
        try:
            async with await listening_connection(url) as connection:
                await connection.execute(SQL("LISTEN {}").format(Identifier(channel)))
                rung = True
                while True:
                    yield rung
                    listened = True
                    rung = bool([_ async for _ in connection.notifies(timeout=at_least_every, stop_after=1)])
        except OperationalError as error:
            _log.warning("lost the connection that listens on %s: %s", channel, error)
        if not listened:
            await asyncio.sleep(_RECONNECT_SECONDS)


async def listening_connection(url: str) -> AsyncConnection[Any]:
    """Connect to the end, also where we are cancelled: Postgres waits a minute for whoever leaves in the middle.

    The connection is in autocommit, to be closed by the caller.
    """
    connect = AsyncConnection.connect(url, autocommit=True, connect_timeout=10, tcp_user_timeout=10_000, **KEEPALIVE)
    connecting = asyncio.get_running_loop().create_task(connect)
    try:
        return await asyncio.shield(connecting)
    except asyncio.CancelledError:
        (found,) = await asyncio.gather(connecting, return_exceptions=True)
        if isinstance(found, AsyncConnection):
            await found.close()
        raise
