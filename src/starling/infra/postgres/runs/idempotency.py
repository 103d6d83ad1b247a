"""Idempotency keys: a request that is sent again under its key leads to the run that it made the first time."""

from dataclasses import dataclass
from typing import Any, Final

from psycopg import AsyncConnection

# A key that stands already is only read, but under its lock: whoever comes second waits for who came first.
_RESERVE: Final = """
INSERT INTO idempotency_keys (tenant, key, request_hash, run_id)
VALUES (%(tenant)s, %(key)s, %(request_hash)s, %(run_id)s)
ON CONFLICT (tenant, key) DO UPDATE SET key = excluded.key
RETURNING run_id::text, request_hash"""


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """What a caller knows a request by, and the digest of that request."""

    text: str
    request_hash: str

    def held_by(self, run_id: str) -> "Holder":
        """Return what `reserve` does where the key stands for that run, by the same request."""
        return Holder(run_id, self.request_hash)


@dataclass(frozen=True, slots=True)
class Holder:
    """The run that a key stands for, and the digest of the request that made it."""

    run_id: str
    request_hash: str


async def reserve(connection: AsyncConnection[Any], tenant: str, key: IdempotencyKey, run_id: str) -> Holder:
    """Have a key stand for a run, in the transaction of the connection, unless it stands for another: return which."""
    values = {"tenant": tenant, "key": key.text, "request_hash": key.request_hash, "run_id": run_id}
    row = await (await connection.execute(_RESERVE.encode(), values)).fetchone()
    assert row is not None
    return Holder(*row)
