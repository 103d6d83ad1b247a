"""The audit trail: one row for each change, written in the transaction of the change."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from starling.core.ids import new_id
from starling.core.principal import SHARED, Principal
from starling.infra.postgres.audit import SOURCE
from starling.infra.postgres.engine import translated
from starling.infra.postgres.tables import audit, audit_events

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


@dataclass(frozen=True, slots=True)
class AuditedChange:
    """One change: `registry.reload` of `epoch 3`, with its details as JSON."""

    action: str
    target: str
    detail: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A recorded change."""

    actor: Actor
    change: AuditedChange
    created_at: datetime


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
    await _add_event(connection, actor.tenant, audit_id, values)


async def _add_event(connection: AsyncConnection, tenant: str, audit_id: str, values: Mapping[str, Any]) -> None:
    """Put an audit event into the outbox; its correlation id is the id of the audit row."""
    await connection.execute(
        insert(audit_events).values(
            tenant=tenant,
            id=new_id(),
            correlation_id=audit_id,
            event_type=values["action"],
            source=SOURCE,
            payload={"tenant": tenant, **values},
        )
    )


async def latest(engine: AsyncEngine, tenant: str, *, limit: int) -> Sequence[AuditEntry]:
    """Return the latest changes made by a tenant, newest first."""
    return await _entries(engine, audit.c.tenant == tenant, limit)


async def latest_of_team(engine: AsyncEngine, tenant: str, name: str, *, limit: int) -> Sequence[AuditEntry]:
    """Return the latest changes of a team, newest first, also those that were made for all tenants."""
    of_team = audit.c.action.startswith("team.") & (audit.c.target == name)
    of_tenant = audit.c.tenant.in_([tenant, SHARED]) & (audit.c.detail["tenant"].astext == tenant)
    return await _entries(engine, of_team & of_tenant, limit)


async def _entries(engine: AsyncEngine, condition: ColumnElement[bool], limit: int) -> Sequence[AuditEntry]:
    query = select(audit).where(condition).order_by(audit.c.id.desc()).limit(limit)
    with translated():
        async with engine.connect() as connection:
            return [
                AuditEntry(
                    Actor(row.tenant, row.actor, row.origin),
                    AuditedChange(row.action, row.target, row.detail),
                    row.created_at,
                )
                for row in await connection.execute(query)
            ]
