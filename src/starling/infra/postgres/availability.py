"""Retry with backoff while Postgres is unavailable, and the check whether it takes writes.

A server that only reads, or whose disk is full, still answers queries.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import inf
from time import monotonic
from typing import Final

from sqlalchemy.ext.asyncio import AsyncEngine
from tenacity import AsyncRetrying, retry_if_exception_type, wait_random_exponential

from starling.core.background_tasks import ignore_failure
from starling.core.errors import DatabaseUnavailableError
from starling.core.outages import Outage
from starling.infra.postgres.connections import answers_within
from starling.infra.postgres.engine import observe_failures, pipelined_transaction

_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 1.0


async def retry_while_unavailable[T](
    attempt: Callable[[], Awaitable[T]], *, seconds: float = inf, give_up: Callable[[], bool] = lambda: False
) -> T:
    """Return what `attempt` returns; repeat it after DatabaseUnavailableError, with random exponential backoff.

    The last DatabaseUnavailableError is raised `seconds` after the first one, or once `give_up()` is true; it is asked
    after each failure. Every other error is raised at once. An attempt whose commit was in doubt is repeated too: it
    has to be idempotent.
    """
    try:
        return await attempt()  # AsyncRetrying takes processor time even where nothing fails
    except DatabaseUnavailableError:
        if seconds <= 0 or give_up():
            raise
    end = monotonic() + seconds
    retrying = AsyncRetrying(
        retry=retry_if_exception_type(DatabaseUnavailableError),
        stop=lambda _: monotonic() >= end or give_up(),
        wait=wait_random_exponential(multiplier=_FIRST_PAUSE_SECONDS, max=_LONGEST_PAUSE_SECONDS),
        reraise=True,
    )
    return await retrying(attempt)


_FRESH_SECONDS: Final = 1.0
_IDLE_SECONDS: Final = 10.0
_ANSWER_SECONDS: Final = 5.0
WRITES: Final = "writes"  # the part of an outage that is over when a check succeeds
_log = logging.getLogger(__name__)
# A function's rows that exceed `work_mem` go to a file, here of about 1 MB. A row or a log entry may fit into a file
# that is there already.
_NEEDS_SPACE: Final = (
    b"SELECT FROM idempotency_keys WHERE false FOR UPDATE",  # refused by a server that only reads
    b"SET LOCAL work_mem = '64kB'",
    b"SET LOCAL temp_tablespaces = ''",
    b"SELECT count(*) FROM generate_series(1, 50000)",
    b"SELECT pg_logical_emit_message(true, 'starling', '')",  # a commit in the write-ahead log, and no row
)


def postgres_outage(clock: Callable[[], float] = monotonic) -> Outage:
    """Return what the parts of a process that need Postgres report its failures to."""
    return Outage(_log, "Requests to Postgres fail", "Postgres can be used again", clock)


class WriteCheck:
    """Checks that Postgres takes writes and has room for them: on request, and every ten seconds by `watch`.

    A success counts for a second, unless a statement of the engine or a part of `outage` fails meanwhile. Callers that
    come during a check share its result.
    """

    def __init__(self, engine: AsyncEngine, clock: Callable[[], float] = monotonic) -> None:
        self.outage = postgres_outage(clock)
        self._engine = engine
        self._clock = clock
        self._succeeded = -inf  # the last check that succeeded: when it began
        self._checking: asyncio.Task[None] | None = None
        observe_failures(engine, self.failed)

    def failed(self, error: DatabaseUnavailableError) -> None:
        """Note that a statement failed."""
        self.outage.failed(error, WRITES)

    async def watch(self) -> None:
        """Check every ten seconds, during an outage every second, until cancelled."""
        while True:
            await asyncio.sleep(_FRESH_SECONDS)
            if self.outage.lasts or self._clock() - self._succeeded >= _IDLE_SECONDS:
                with suppress(DatabaseUnavailableError):
                    await self.check()

    async def check(self) -> None:
        """Raise DatabaseUnavailableError unless Postgres takes writes, or took one within the last second."""
        if self.outage.failed_at < self._succeeded and self._clock() - self._succeeded < _FRESH_SECONDS:
            return
        if (checking := self._checking) is None or checking.done():
            checking = self._checking = asyncio.get_running_loop().create_task(self._write(), name="check-writes")
            checking.add_done_callback(ignore_failure)
        await asyncio.wait({checking})  # the check goes on for the others where one caller is cancelled
        checking.result()

    async def _write(self) -> None:
        begun = self._clock()
        with answers_within(_ANSWER_SECONDS):
            async with pipelined_transaction(self._engine) as connection:
                for statement in _NEEDS_SPACE:
                    await connection.execute(statement)
        self._succeeded = begun
        if self.outage.failed_at < begun:
            self.outage.recovered(WRITES)
