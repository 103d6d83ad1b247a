"""Leases renewed over a connection of their own, for the thread that keeps them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from psycopg import Connection

from starling.core.runs import Run
from starling.infra.postgres.engine import ConnectionLimits, address_of, arguments_of, translated
from starling.infra.postgres.timeouts import BoundedThreadConnection

# A row that is locked is being written to, and left for the next time: one of them doesn't hold up the others.
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


type Hold = tuple[str, int]
"""The id of a run, and the fence that it is held under."""


@dataclass(frozen=True, slots=True)
class Renewed:
    """What a renewal came to: what still holds, what of it is locked and not renewed, what is to be cancelled."""

    held: frozenset[Hold]
    locked: frozenset[Hold]
    cancelled: frozenset[Hold]


class Renewals:
    """Connects when there is something to renew, and again after each failure. No wait lasts longer than a lease."""

    def __init__(self, url: str, *, lease_seconds: float) -> None:
        self._url = url
        self._lease_seconds = lease_seconds
        patience = max(1.0, lease_seconds / 6)
        self._limits = ConnectionLimits(connect_seconds=2, statement_seconds=patience, network_seconds=patience / 2)
        self._connection: Connection[Any] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def renew(self, runs: Sequence[Run]) -> Renewed:
        """Renew the leases of runs that are held, by the database's clock. Raises DatabaseUnavailableError."""
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
        return Renewed(
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
