"""Stores the open breakers of this process, for other processes to show."""

import asyncio
import logging
from typing import Final

from mcp_gateway.sessions.breaker import ServerBreakers
from starling.core.errors import DatabaseUnavailableError
from starling.infra.postgres.server_breakers import BreakerRepository

_STOP_SECONDS: Final = 2.0
_log = logging.getLogger(__name__)


class BreakerReports:
    """Writes when a breaker opens, waits anew or closes, in the background: no call waits for it.

    What can't be stored while Postgres is away is not stored later; rows of an earlier state expire.
    """

    def __init__(self, stored: BreakerRepository, process: str, breakers: ServerBreakers) -> None:
        self._stored = stored
        self._process = process
        self._breakers = breakers
        breakers.on_change = self._changed_now
        self._changed: dict[str, None] = {}  # in order
        self._writing: asyncio.Task[None] | None = None
        self._any_stored = self._stopped = False

    async def stop(self) -> None:
        """Write no more; delete what this process stored."""
        self._stopped = True
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                if self._writing is not None:
                    await self._writing
                if self._any_stored:
                    await self._stored.remove(self._process)
        except (TimeoutError, DatabaseUnavailableError) as error:
            _log.warning("servers that failed here are shown as failing for some minutes yet: %r", error)

    def _changed_now(self, server: str) -> None:
        if self._stopped:
            return
        self._changed[server] = None
        if self._writing is None or self._writing.done():
            self._writing = asyncio.get_running_loop().create_task(self._write(), name="store breakers")

    async def _write(self) -> None:
        while self._changed:
            server = next(iter(self._changed))
            del self._changed[server]
            try:
                await self._store(server)
            except DatabaseUnavailableError as error:
                _log.warning("other processes are not told how calls of server %s end here: %s", server, error)

    async def _store(self, server: str) -> None:
        state = self._breakers.state_of(server)
        if state is None:
            await self._stored.remove(self._process, server)
        else:
            self._any_stored = True
            await self._stored.save(server, self._process, state.failures, state.reason, state.seconds)
