"""The open breakers of servers, by process: what other processes know of calls that fail at once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import TextClause, text

from starling.core.json import storable_text
from starling.core.principal import SHARED
from starling.infra.postgres.engine import Repository

_SHOWN_SECONDS: Final = 600.0  # after the time of the next trial: nothing has been tried, or the process has ended
_SAVE: Final = text("""
WITH expired AS (
    DELETE FROM server_breakers
    WHERE expires_at < now() AND (tenant, server, process) <> (:tenant, :server, :process))
INSERT INTO server_breakers (tenant, server, process, failures, reason, retry_at, expires_at)
VALUES (:tenant, :server, :process, :failures, :reason, now() + CAST(:wait AS interval),
    now() + CAST(:shown AS interval))
ON CONFLICT (tenant, server, process) DO UPDATE
SET failures = excluded.failures, reason = excluded.reason, retry_at = excluded.retry_at,
    expires_at = excluded.expires_at""")
_REMOVE: Final = text(
    "DELETE FROM server_breakers WHERE tenant = :tenant AND process = :process"
    " AND (server = :server OR CAST(:server AS text) IS NULL)"
)
_OPEN: Final = text("""
SELECT server, process, failures, reason, since, retry_at FROM server_breakers
WHERE tenant = :tenant AND expires_at > now() ORDER BY server, process""")


@dataclass(frozen=True, slots=True)
class StoredBreaker:
    """A process whose calls of a server fail at once since `since`; one of them tries it at `retry_at` or later.

    `failures` is how often the server failed there in a row, `reason` why it did last.
    """

    process: str
    failures: int
    reason: str
    since: datetime
    retry_at: datetime


def failing_text(breakers: Sequence[StoredBreaker]) -> str:
    """Return in one sentence where calls of a server fail at once, and the reason of the latest failure."""
    last = max(breakers, key=lambda breaker: breaker.retry_at)
    where = last.process if len(breakers) == 1 else f"{len(breakers)} processes"
    return f"Calls fail at once in {where}, the next trial is at {last.retry_at:%H:%M:%S %Z}: {last.reason}"


class BreakerRepository(Repository):
    """Open breakers. Raises DatabaseUnavailableError where Postgres is away."""

    async def save(self, server: str, process: str, failures: int, reason: str, seconds: float) -> None:
        """Store that a process makes no calls of a server for so many seconds; delete what has expired."""
        values = {"tenant": SHARED, "server": server, "process": process, "failures": failures}
        values |= {"reason": storable_text(reason), "wait": timedelta(seconds=seconds)}
        values |= {"shown": timedelta(seconds=seconds + _SHOWN_SECONDS)}
        await self._execute(_SAVE, values)

    async def remove(self, process: str, server: str | None = None) -> None:
        """Delete what a process stored, of one server or of all."""
        await self._execute(_REMOVE, {"tenant": SHARED, "process": process, "server": server})

    async def by_server(self) -> Mapping[str, Sequence[StoredBreaker]]:
        """Return the open breakers of all processes, by server."""
        found: dict[str, list[StoredBreaker]] = {}
        async with self.reading() as connection:
            for server, *values in await connection.execute(_OPEN, {"tenant": SHARED}):
                found.setdefault(server, []).append(StoredBreaker(*values))
        return found

    async def _execute(self, statement: TextClause, values: Mapping[str, object]) -> None:
        async with self.changing() as connection:
            await connection.execute(statement, values)
