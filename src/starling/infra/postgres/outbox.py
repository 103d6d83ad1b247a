"""The outbox: audit events, written in the transaction of their cause and delivered later."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy.ext.asyncio import AsyncEngine

from starling.core.ids import new_id
from starling.core.json import JsonObject
from starling.infra.postgres.engine import driver, translated

SOURCE: Final = "starling"
DELIVERY_DAYS: Final = 7  # older events are not delivered

# For rows of `runs` that the same statement writes: a run was accepted, or it ended.
INSERT_RUN_AUDIT_EVENT = """
INSERT INTO audit_events (tenant, id, correlation_id, event_type, source, payload)
SELECT tenant, %(audit_id)s, correlation_id,
    CASE WHEN ended_at IS NULL THEN 'run_started' WHEN status = 'succeeded' THEN 'run_completed' ELSE 'run_failed' END,
    %(audit_source)s,
    jsonb_strip_nulls(jsonb_build_object(
        'tenant', tenant, 'run_id', id, 'thread_id', thread_id, 'trace_id', trace_id, 'epoch', epoch,
        'status', status, 'usage', result -> 'usage'))
FROM written"""

_TAKE = """
UPDATE audit_events SET due_at = now() + make_interval(secs => %(lease)s)
WHERE (tenant, id) IN (
    SELECT tenant, id FROM audit_events
    WHERE delivered_at IS NULL AND due_at <= now() AND created_at > now() - make_interval(days => %(days)s)
    ORDER BY due_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
RETURNING tenant, id::text, correlation_id, event_type, source, payload"""

# After its lease has expired, another process may hold the same event: all processes lock events in one order.
_SETTLE = """
WITH settled AS (
    SELECT tenant, id, delivered FROM audit_events
    JOIN unnest(%(tenants)s::text[], %(ids)s::uuid[], %(delivered)s::bool[])
    AS given (tenant, id, delivered) USING (tenant, id)
    ORDER BY tenant, id FOR UPDATE OF audit_events)
UPDATE audit_events SET delivered_at = CASE WHEN delivered THEN now() ELSE delivered_at END,
    due_at = CASE WHEN delivered THEN due_at ELSE created_at END
FROM settled WHERE audit_events.tenant = settled.tenant AND audit_events.id = settled.id"""


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """An audit event. `id` is not part of the document; it identifies an event that is delivered twice."""

    tenant: str
    id: str
    correlation_id: str
    event_type: str
    source: str
    payload: JsonObject

    def document(self) -> JsonObject:
        """Return the event as it is delivered."""
        return {
            "correlation_id": self.correlation_id,
            "event_type": self.event_type,
            "source": self.source,
            "payload": self.payload,
        }


def run_event_values() -> dict[str, str]:
    """Return the parameters of INSERT_RUN_AUDIT_EVENT."""
    return {"audit_id": new_id(), "audit_source": SOURCE}


class Outbox:
    """Audit events that are not delivered yet. Events older than `days` are never delivered."""

    def __init__(self, engine: AsyncEngine, days: int = DELIVERY_DAYS) -> None:
        self._engine = engine
        self._days = days

    async def take(self, limit: int, *, lease_seconds: float) -> Sequence[AuditEvent]:
        """Return the events that are due, oldest first; other callers don't get them for `lease_seconds`."""
        values = {"limit": limit, "lease": lease_seconds, "days": self._days}
        with translated():
            async with self._engine.begin() as transaction:
                cursor = await (await driver(transaction)).execute(_TAKE, values)
                found = [AuditEvent(*row) for row in await cursor.fetchall()]
        return sorted(found, key=lambda event: event.id)

    async def settle(self, delivered: Sequence[AuditEvent], undelivered: Sequence[AuditEvent]) -> None:
        """Mark events as delivered; the undelivered ones are due again at once."""
        values = {
            "tenants": [event.tenant for event in (*delivered, *undelivered)],
            "ids": [event.id for event in (*delivered, *undelivered)],
            "delivered": [True] * len(delivered) + [False] * len(undelivered),
        }
        with translated():
            async with self._engine.begin() as transaction:
                await (await driver(transaction)).execute(_SETTLE, values)
