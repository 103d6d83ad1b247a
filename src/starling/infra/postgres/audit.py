"""The audit trail, one row for each change, and the outbox of events that are delivered later."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from starling.core.errors import ForbiddenError
from starling.core.ids import new_id
from starling.core.json import JsonObject
from starling.core.principal import SHARED, Principal, Scope
from starling.infra.postgres.engine import Repository, driver, reading
from starling.infra.postgres.tables.access import audit, audit_events

LOCAL: Final = "local"


@dataclass(frozen=True, slots=True)
class Actor:
    """The author of a change. `name` is the id of a key, or `local` for a caller without a key.

    `origin` is the address of a client, or one of `cli`, `start`, `file`, `session`.
    """

    tenant: str
    name: str
    origin: str

    @classmethod
    def local(cls, origin: str) -> "Actor":
        """Return the local user, whose changes apply to every tenant."""
        return cls(SHARED, LOCAL, origin)

    @classmethod
    def caller(cls, principal: Principal, address: str) -> "Actor":
        """Return the caller of the API at an address."""
        return cls(principal.tenant, principal.key_id or LOCAL, address)


def check_maker(what: str, maker: str | None, caller: Principal) -> None:
    """Raise ForbiddenError where a caller who isn't an admin would change what another one made.

    `maker` is that of a Principal, None where it isn't known.
    """
    if maker != caller.maker and Scope.ADMIN not in caller.scopes:
        raise ForbiddenError(f"The {what} was made by somebody else.", "A key with the scope `admin` can change it.")


@dataclass(frozen=True, slots=True)
class AuditedChange:
    """One change: `registry.reload` of `epoch 3`, with its details as JSON."""

    action: str
    target: str
    detail: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A change: `by` is the id of a key or `local`, `origin` the address of its client, or `cli`, `start` or `file`."""

    at: datetime
    by: str
    origin: str
    action: str
    target: str
    detail: Mapping[str, Any]


async def record(connection: AsyncConnection, actor: Actor, change: AuditedChange) -> None:
    """Record a change and its audit event, in the transaction that makes the change."""
    audit_id = new_id()
    values = {
        "actor": actor.name,
        "origin": actor.origin,
        "action": change.action,
        "target": change.target,
        "detail": dict(change.detail),
    }
    await connection.execute(insert(audit).values(tenant=actor.tenant, id=audit_id, **values))
    await connection.execute(  # the outbox
        insert(audit_events).values(
            tenant=actor.tenant,
            id=new_id(),
            correlation_id=audit_id,
            event_type=change.action,
            source=SOURCE,
            payload={"tenant": actor.tenant, **values},
        )
    )


async def latest(engine: AsyncEngine, *tenants: str, limit: int) -> Sequence[AuditEntry]:
    """Return the latest changes made by tenants, newest first."""
    return await _entries(engine, audit.c.tenant.in_(tenants), limit)


async def latest_of_team(engine: AsyncEngine, tenant: str, name: str, *, limit: int) -> Sequence[AuditEntry]:
    """Return the latest changes of a team, newest first, also those that were made for all tenants."""
    of_team = audit.c.action.startswith("team.") & (audit.c.target == name)
    of_tenant = audit.c.tenant.in_([tenant, SHARED]) & (audit.c.detail["tenant"].astext == tenant)
    return await _entries(engine, of_team & of_tenant, limit)


async def _entries(engine: AsyncEngine, condition: ColumnElement[bool], limit: int) -> Sequence[AuditEntry]:
    columns = (audit.c.created_at, audit.c.actor, audit.c.origin, audit.c.action, audit.c.target, audit.c.detail)
    query = select(*columns).where(condition).order_by(audit.c.id.desc()).limit(limit)
    async with reading(engine) as connection:
        return [AuditEntry(*row) for row in await connection.execute(query)]


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
        'status', status, 'usage', result -> 'usage', 'forked_from', forked_from #- '{changes,input}'))
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
        return {name: getattr(self, name) for name in ("correlation_id", "event_type", "source", "payload")}


def run_event_values() -> dict[str, str]:
    """Return the parameters of INSERT_RUN_AUDIT_EVENT."""
    return {"audit_id": new_id(), "audit_source": SOURCE}


class Outbox(Repository):
    """Audit events that are not delivered yet."""

    async def take(self, limit: int, *, lease_seconds: float) -> Sequence[AuditEvent]:
        """Return the events that are due, oldest first; other callers don't get them for `lease_seconds`."""
        values = {"limit": limit, "lease": lease_seconds, "days": DELIVERY_DAYS}
        async with self.changing() as transaction:
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
        async with self.changing() as transaction:
            await (await driver(transaction)).execute(_SETTLE, values)
