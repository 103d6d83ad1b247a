"""Restarts the embedded server whenever it ends."""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from starling.core.errors import DatabaseUnavailableError
from starling.infra.postgres.embedded.server import EmbeddedPostgres

_CHECK_SECONDS: Final = 0.5  # where the system doesn't tell that a process ended
_log = logging.getLogger(__name__)


@asynccontextmanager
async def restarting(server: EmbeddedPostgres) -> AsyncGenerator[asyncio.Task[None]]:
    """Restart the server, on the same port, whenever it ends for as long as the context lasts.

    Yields the task that does so. It ends only with an error: DatabaseUnavailableError if the server has to take
    another port. The loop must run in the main thread.
    """
    task = asyncio.get_running_loop().create_task(_restart_whenever_ended(server), name="restart-postgres")
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _restart_whenever_ended(server: EmbeddedPostgres) -> None:
    url = server.url
    while True:
        await _ended_or_checked(server.pid)
        if server.is_running:
            continue
        _log.warning("the embedded Postgres ended; restarting it")
        server.stop()
        try:
            server.start()
        except DatabaseUnavailableError as error:  # remains of the former server may need a moment
            _log.warning("the embedded Postgres doesn't start: %s", error)
        else:
            _check_same(url, server.url)


async def _ended_or_checked(pid: int) -> None:
    """Return when a process has ended. Where there are no descriptors of processes, return after half a second."""
    try:
        descriptor = os.pidfd_open(pid)
    except (AttributeError, OSError):
        await asyncio.sleep(_CHECK_SECONDS)
        return
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _check_same(before: str, now: str) -> None:
    if before != now:
        raise DatabaseUnavailableError(
            "The embedded Postgres was restarted, but its former port is in use.", "Start Starling again."
        )
