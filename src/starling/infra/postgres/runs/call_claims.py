"""Calls of tools across runs: equal calls that one of them makes for all, and servers that were called recently."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal

from sqlalchemy import text

from starling.core.tool_calls import UNCERTAIN, CallState
from starling.infra.postgres.engine import Repository, fetch_autocommit

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


class CallClaims(Repository):
    """Claims of keys. Raises DatabaseUnavailableError where Postgres is away."""

    async def claim(self, call: CallPlace, key: str, seconds: float) -> EarlierCall | None:
        """Claim a key for a call and return None, or return the earlier call that has it.

        That one gives the key up once it has failed, its result is older than `seconds`, or its run has ended before
        it left. If it can't be found out any more whether it was done, it keeps the key for so many seconds.
        """
        place = {"tenant": call.tenant, "key": key}
        own = {"run": call.run_id, "call": call.call_key}
        async with self.changing() as connection:
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


_RUNS: Final = 50  # in which calls are looked for
# Both tables have the tenant first in their keys, so that each step reads a few entries of an index.
_CALLED: Final = """
WITH RECURSIVE tenants AS (
    (SELECT tenant FROM runs ORDER BY tenant LIMIT 1)
    UNION ALL
    SELECT (SELECT runs.tenant FROM runs WHERE runs.tenant > tenants.tenant ORDER BY runs.tenant LIMIT 1)
    FROM tenants WHERE tenants.tenant IS NOT NULL
), latest AS (
    SELECT run.tenant, run.id
    FROM tenants CROSS JOIN LATERAL
        (SELECT tenant, id FROM runs WHERE runs.tenant = tenants.tenant ORDER BY id DESC LIMIT %(runs)s) AS run
    ORDER BY run.id DESC LIMIT %(runs)s
)
SELECT events.tenant, split_part(events.data ->> 'name', '.', 1) AS server
FROM latest JOIN events ON events.tenant = latest.tenant AND events.run_id = latest.id AND events.type = 'tool_start'
GROUP BY 1, 2
ORDER BY max(events.created_at) DESC"""


@dataclass(frozen=True, slots=True)
class CalledServer:
    """A server that was called for a tenant."""

    tenant: str
    server: str


class RecentCalls(Repository):
    """Reads which servers were called by the latest runs."""

    async def servers(self) -> Sequence[CalledServer]:
        """Return the servers and tenants of the last 50 runs, latest call first. Raises DatabaseUnavailableError."""
        return [CalledServer(*row) for row in await fetch_autocommit(self._engine, _CALLED, {"runs": _RUNS})]
