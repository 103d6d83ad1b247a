"""What others are to be told of: audit events, written with what they are about and delivered later."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy.ext.asyncio import AsyncEngine

from starling.core.ids import new_id
from starling.core.json import JsonObject
from starling.infra.postgres.engine import driver, translated

SOURCE: Final = "starling"
DELIVERY_DAYS: Final = 7  # then nobody is told any more

# For rows of `runs` that the same statement has just written: a run was accepted, or it ended.
TELL_OF_RUN = """
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

# What was kept for longer than its lease may be somebody else's too: all lock it in one order.
_SETTLE = """
WITH settled AS (
    SELECT tenant, id, told FROM audit_events
    JOIN unnest(%(tenants)s::text[], %(ids)s::uuid[], %(told)s::bool[]) AS given (tenant, id, told) USING (tenant, id)
    ORDER BY tenant, id FOR UPDATE OF audit_events)
UPDATE audit_events SET delivered_at = CASE WHEN told THEN now() ELSE delivered_at END,
    due_at = CASE WHEN told THEN due_at ELSE created_at END
FROM settled WHERE audit_events.tenant = settled.tenant AND audit_events.id = settled.id"""


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """Something that happened. `id` isn't part of what is told, but makes it recognisable when it is told twice."""

    tenant: str
    id: str
    correlation_id: str
    event_type: str
    source: str
    payload: JsonObject

    def document(self) -> JsonObject:
        """Return the event as others are told."""
        return {
            "correlation_id": self.correlation_id,
            "event_type": self.event_type,
            "source": self.source,
            "payload": self.payload,
        }


def telling() -> dict[str, str]:
    """Return the values that TELL_OF_RUN takes."""
    return {"audit_id": new_id(), "audit_source": SOURCE}


class Outbox:
    """Audit events that nobody was told of yet. Those that are `days` old are told to nobody any more."""

    def __init__(self, engine: AsyncEngine, days: int = DELIVERY_DAYS) -> None:
        self._engine = engine
        self._days = days

    async def take(self, limit: int, *, lease_seconds: float) -> Sequence[AuditEvent]:
        """Return what is due, oldest first; nobody else is given the same for `lease_seconds`."""
        values = {"limit": limit, "lease": lease_seconds, "days": self._days}
        with translated():
            async with self._engine.begin() as transaction:
                cursor = await (await driver(transaction)).execute(_TAKE, values)
                found = [AuditEvent(*row) for row in await cursor.fetchall()]
        return sorted(found, key=lambda event: event.id)

    async def settle(self, told: Sequence[AuditEvent], untold: Sequence[AuditEvent]) -> None:
        """Remember which others were told of; the rest is due again at once."""
        values = {
            "tenants": [event.tenant for event in (*told, *untold)],
            "ids": [event.id for event in (*told, *untold)],
            "told": [True] * len(told) + [False] * len(untold),
        }
        with translated():
            async with self._engine.begin() as transaction:
                await (await driver(transaction)).execute(_SETTLE, values)
