"""Whether Postgres takes writes: one that only reads, or whose disk is full, still answers queries."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from sqlalchemy.ext.asyncio import AsyncEngine

from starling.core.errors import DatabaseUnavailableError
from starling.core.ids import new_id
from starling.infra.postgres.engine import execute_autocommit, transaction, translated

_LOG_ENTRY: Final = """
SELECT CASE WHEN current_setting('transaction_read_only') = 'off'
       THEN pg_logical_emit_message(true, 'starling', '')::text END"""  # a commit in the write-ahead log, and no row
_ROW: Final = """
INSERT INTO idempotency_keys (tenant, key, request_hash, run_id)
SELECT '', %(id)s::text, string_agg(md5(random()::text), ''), %(id)s::uuid FROM generate_series(1, 1000)"""  # 32 kB


class WriteCheck:
    """Checks writes on request, with rows once a real write has failed, until such a check succeeds."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._failed = False

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
        """Raise DatabaseUnavailableError unless Postgres takes writes."""
        with translated():
            if await execute_autocommit(self._engine, _LOG_ENTRY, {}) == (None,):
                raise DatabaseUnavailableError("Postgres only reads.", "Check that it is the primary server.")
            if self._failed:
                await self._write_rows()
        self._failed = False

    async def _write_rows(self) -> None:
        async with transaction(self._engine) as connection:
            await connection.execute(_ROW, {"id": new_id()})
            await connection.rollback()
