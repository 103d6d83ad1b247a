"""Idempotency keys: a repeated request with the same key returns the run that the first request created."""

from dataclasses import dataclass
from typing import Any, Final

from psycopg import AsyncConnection
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.infra.postgres.engine import execute_autocommit, translated

# An existing key is only read, but its row is locked: the second of two requests waits for the first.
_RESERVE: Final = """
INSERT INTO idempotency_keys (tenant, key, request_hash, run_id)
VALUES (%(tenant)s, %(key)s, %(request_hash)s, %(run_id)s)
ON CONFLICT (tenant, key) DO UPDATE SET key = excluded.key
RETURNING run_id::text, request_hash"""


_IS_STORED: Final = "SELECT FROM idempotency_keys WHERE tenant = %(tenant)s AND key = %(key)s"


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """The key that the caller sent, and the digest of the request."""

    text: str
    request_hash: str

    def record_for(self, run_id: str) -> "IdempotencyRecord":
        """Return the record that `reserve` returns if the key belongs to that run and the same request."""
        return IdempotencyRecord(run_id, self.request_hash)


@dataclass(frozen=True, slots=True)
class IdempotencyRecord:
    """The run that a key belongs to, and the digest of the request that created it."""

    run_id: str
    request_hash: str


async def reserve(connection: AsyncConnection[Any], tenant: str, key: IdempotencyKey, run_id: str) -> IdempotencyRecord:
    """Store a key for a run in the connection's transaction, unless it is taken; return the stored record."""
    values = {"tenant": tenant, "key": key.text, "request_hash": key.request_hash, "run_id": run_id}
    row = await (await connection.execute(_RESERVE.encode(), values)).fetchone()
    assert row is not None
    return IdempotencyRecord(*row)


async def is_stored(engine: AsyncEngine, tenant: str, key: str) -> bool:
    """Return whether a key was stored by an earlier request of the tenant."""
    with translated():
        return await execute_autocommit(engine, _IS_STORED, {"tenant": tenant, "key": key}) is not None
