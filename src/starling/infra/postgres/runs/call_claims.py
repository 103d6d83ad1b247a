"""Which call of a principal an equal one gets its result from: one call at a time claims a key."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.core.tool_calls import UNCERTAIN, CallState
from starling.infra.postgres.engine import translated

_CLAIM: Final = text("""
INSERT INTO call_claims (tenant, key, run_id, call_key) VALUES (:tenant, :key, CAST(:run AS uuid), :call)
ON CONFLICT DO NOTHING RETURNING 1""")
# The claim stays locked until the transaction ends: so two calls never both take it over.
_EARLIER: Final = text("""
SELECT call_claims.run_id::text AS run_id, call_claims.call_key, ledger.state, ledger.outcome,
    ledger.path || '.' || ledger.position || '.' || ledger.index AS call_id,
    ledger.settled_at IS NOT NULL AS settled, runs.ended_at IS NOT NULL AS ended,
    greatest(ledger.settled_at, ledger.dispatched_at, call_claims.created_at) < now() - CAST(:age AS interval) AS old
FROM call_claims
LEFT JOIN ledger ON (ledger.tenant, ledger.run_id, ledger.key)
    = (call_claims.tenant, call_claims.run_id, call_claims.call_key)
LEFT JOIN runs ON (runs.tenant, runs.id) = (call_claims.tenant, call_claims.run_id)
WHERE call_claims.tenant = :tenant AND call_claims.key = :key
FOR UPDATE OF call_claims""")
_TAKE_OVER: Final = text("""
UPDATE call_claims SET run_id = CAST(:run AS uuid), call_key = :call, created_at = now()
WHERE tenant = :tenant AND key = :key""")


@dataclass(frozen=True, slots=True)
class CallPlace:
    """A call: its run, and the key of its row in the run's ledger."""

    tenant: str
    run_id: str
    call_key: str


@dataclass(frozen=True, slots=True)
class EarlierCall:
    """An equal call that came before: `done` has its outcome as JSON, the others keep equal calls from leaving."""

    run_id: str
    call_id: str
    standing: Literal["done", "open", "in_doubt"]
    outcome: dict[str, Any] | None = None


class CallClaims:
    """Claims of keys. Raises DatabaseUnavailableError where Postgres is away."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def claim(self, call: CallPlace, key: str, seconds: float) -> EarlierCall | None:
        """Claim a key for a call and return None, or return the earlier call that has it.

        That one gives the key up once it has failed, its result is older than `seconds`, or its run has ended before
        it left. If it can't be found out any more whether it was done, it keeps the key for so many seconds.
        """
        place = {"tenant": call.tenant, "key": key}
        own = {"run": call.run_id, "call": call.call_key}
        with translated():
            async with self._engine.begin() as connection:
                if (await connection.execute(_CLAIM, place | own)).one_or_none() is not None:
                    return None
                row = (await connection.execute(_EARLIER, place | {"age": timedelta(seconds=seconds)})).one_or_none()
                if row is None:  # deleted between the two statements, because its run is too old
                    return EarlierCall("", "", "open")
                if (row.run_id, row.call_key) == (call.run_id, call.call_key):
                    return None
                if (earlier := _earlier(row)) is None:
                    await connection.execute(_TAKE_OVER, place | own)
                return earlier


def _earlier(row: Any) -> EarlierCall | None:
    """Return the call that has a key, None where it has lost it."""
    state = CallState(row.state) if row.state else CallState.FAILED  # a row that was deleted is older than can matter
    if state is CallState.FAILED or (state is CallState.INTENDED and row.ended):
        return None
    if state is CallState.SUCCEEDED:
        return None if row.old else EarlierCall(row.run_id, row.call_id, "done", row.outcome)
    closed = row.settled or row.ended
    if closed and row.old:
        return None
    in_doubt = state in UNCERTAIN or (state is CallState.DISPATCHED and row.ended)
    return EarlierCall(row.run_id, row.call_id, "in_doubt" if in_doubt else "open")
