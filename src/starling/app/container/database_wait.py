"""Waits for a database that starts together with this process."""

import asyncio
import logging

from starling.app.container.database import Database
from starling.core.errors import DatabaseUnavailableError
from starling.infra.postgres.engine import connected

_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 5.0
_log = logging.getLogger(__name__)


async def wait_for_database(database: Database, seconds: float) -> None:
    """Wait until Postgres answers: services may be started together with it.

    Raises DatabaseUnavailableError after `seconds`.
    """
    clock = asyncio.get_running_loop().time
    until, pause = clock() + seconds, _FIRST_PAUSE_SECONDS
    while True:
        try:
            async with connected(database.direct_url):
                return
        except DatabaseUnavailableError as error:
            if (left := until - clock()) <= 0:
                raise
            _log.warning("%s Waiting for it, %.0f s at most.", error.message, left)
        await asyncio.sleep(min(pause, left))
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
