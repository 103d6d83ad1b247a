"""Retry with backoff while Postgres is unavailable, and the check whether it takes writes.

A server that only reads, or whose disk is full, still answers queries.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from math import inf
from time import monotonic
from typing import Final

from sqlalchemy.ext.asyncio import AsyncEngine
from tenacity import AsyncRetrying, retry_if_exception_type, wait_random_exponential

from starling.core.errors import DatabaseUnavailableError
from starling.core.ids import new_id
from starling.infra.postgres.engine import (
    execute_autocommit,
    replace_idle_connections,
    transaction,
)

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
_LOG_ENTRY: Final = """
SELECT CASE WHEN current_setting('transaction_read_only') = 'off'
       THEN pg_logical_emit_message(true, 'starling', '')::text END"""  # a commit in the write-ahead log, and no row
_ROW: Final = """
INSERT INTO idempotency_keys (tenant, key, request_hash, run_id)
SELECT '', %(id)s::text, string_agg(md5(random()::text), ''), %(id)s::uuid FROM generate_series(1, 1000)"""  # 32 kB


class WriteCheck:
    """Checks writes on request, with rows once a real write has failed, until such a check succeeds.

    A success counts for a second, unless a write fails meanwhile. Callers that come during a check share its result.
    """

    def __init__(self, engine: AsyncEngine, clock: Callable[[], float] = monotonic) -> None:
        self._engine = engine
        self._clock = clock
        self._failed = False
        self._succeeded = float("-inf")  # when the last successful check began
        self._checking: asyncio.Task[None] | None = None

    @contextmanager
    def watched(self) -> Generator[None]:
        """Note whether the write in this block succeeds."""
        try:
            yield
        except DatabaseUnavailableError:
            self._failed = True
            raise
        self._failed = False

    async def check(self) -> None:
        """Raise DatabaseUnavailableError unless Postgres takes writes, or took one within the last second."""
        if not self._failed and self._clock() - self._succeeded < _FRESH_SECONDS:
            return
        if (checking := self._checking) is None or checking.done():
            checking = self._checking = asyncio.get_running_loop().create_task(self._write(), name="check-writes")
            checking.add_done_callback(lambda task: task.cancelled() or task.exception())  # all callers may be gone
        await asyncio.wait({checking})  # the check goes on for the others where one caller is cancelled
        checking.result()

    async def _write(self) -> None:
        begun = self._clock()
        if await execute_autocommit(self._engine, _LOG_ENTRY, {}) == (None,):
            await replace_idle_connections(self._engine)
            raise DatabaseUnavailableError("Postgres only reads.", "Check that it is the primary server.")
        if self._failed:
            async with transaction(self._engine) as connection:
                await connection.execute(_ROW, {"id": new_id()})
                await connection.rollback()
        self._failed = False
        self._succeeded = begun
