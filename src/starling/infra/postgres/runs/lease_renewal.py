"""Lease renewal over a separate synchronous connection, for the heartbeat thread."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from psycopg import Connection

from starling.core.runs import Run
from starling.infra.postgres.engine import ConnectionLimits, address_of, arguments_of, translated
from starling.infra.postgres.timeouts import BoundedThreadConnection

# A locked row is being written to; it is skipped until the next renewal, so that it does not delay the others.
_RENEW = """
WITH held AS (
    SELECT * FROM unnest(%(tenants)s::text[], %(ids)s::uuid[], %(fences)s::bigint[]) AS held (tenant, id, fence)),
free AS (
    SELECT runs.tenant, runs.id FROM runs JOIN held USING (tenant, id, fence) WHERE status = 'running'
    FOR NO KEY UPDATE OF runs SKIP LOCKED),
renewed AS (
    UPDATE runs SET lease_until = now() + make_interval(secs => %(lease)s) FROM free
    WHERE runs.tenant = free.tenant AND runs.id = free.id
    RETURNING runs.id)
SELECT runs.id::text, fence, status = 'running' AND renewed.id IS NULL, cancel_requested
FROM runs JOIN held USING (tenant, id, fence) LEFT JOIN renewed ON renewed.id = runs.id"""


type LeaseKey = tuple[str, int]
"""The id of a run and the fence under which it was claimed."""


@dataclass(frozen=True, slots=True)
class RenewalResult:
    """The result of a renewal: leases still held, those of them skipped as locked, and those of runs to cancel."""

    held: frozenset[LeaseKey]
    locked: frozenset[LeaseKey]
    cancelled: frozenset[LeaseKey]


class LeaseRenewer:
    """Renews leases. Connects on first use and after each failure; no wait lasts longer than a lease."""

    def __init__(self, url: str, *, lease_seconds: float) -> None:
        self._url = url
        self._lease_seconds = lease_seconds
        statement_seconds = max(1.0, lease_seconds / 6)
        self._limits = ConnectionLimits(
            connect_seconds=2, statement_seconds=statement_seconds, network_seconds=statement_seconds / 2
        )
        self._connection: Connection[Any] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def renew(self, runs: Sequence[Run]) -> RenewalResult:
        """Renew the leases of these runs by the database's clock. Raises DatabaseUnavailableError."""
        values = {
            "tenants": [run.tenant for run in runs],
            "ids": [run.id for run in runs],
            "fences": [run.fence for run in runs],
            "lease": self._lease_seconds,
        }
        try:
            with translated():
                rows = self._connected().execute(_RENEW, values).fetchall()
        except BaseException:
            self._close()
            raise
        return RenewalResult(
            held=frozenset((run_id, fence) for run_id, fence, _, _ in rows),
            locked=frozenset((run_id, fence) for run_id, fence, locked, _ in rows if locked),
            cancelled=frozenset((run_id, fence) for run_id, fence, _, cancelled in rows if cancelled),
        )

    def _connected(self) -> Connection[Any]:
        if self._connection is None:
            arguments = arguments_of(self._url, self._limits)
            connection = BoundedThreadConnection.connect(address_of(self._url), autocommit=True, **arguments)
            connection.answer_seconds = self._limits.answer_seconds
            self._connection = connection
        return self._connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
