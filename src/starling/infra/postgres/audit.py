"""Who changed what, from where: one row a change, in the transaction of the change."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from starling.core.ids import new_id
from starling.core.principal import SHARED, Principal
from starling.infra.postgres.engine import translated
from starling.infra.postgres.outbox import SOURCE
from starling.infra.postgres.tables import audit, audit_events

LOCAL: Final = "local"


@dataclass(frozen=True, slots=True)
class Actor:
    """Who changes something. `name` is the id of a key, or `local` for whoever needs none.

    `origin` is the address of a client, or what it came through: `cli`, `start`, `file`.
    """

    tenant: str
    name: str
    origin: str

    @classmethod
    def local(cls, origin: str) -> "Actor":
        """Return whoever sits at this machine; what is done there is done for every tenant."""
        return cls(SHARED, LOCAL, origin)

    @classmethod
    def caller(cls, principal: Principal, address: str) -> "Actor":
        """Return the caller of the API at an address."""
        return cls(principal.tenant, principal.key_id or LOCAL, address)


@dataclass(frozen=True, slots=True)
class Deed:
    """One change: `registry.reload` of `epoch 3`, with its details as JSON."""

    action: str
    target: str
    detail: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A change as it was recorded."""

    actor: Actor
    deed: Deed
    created_at: datetime


async def record(connection: AsyncConnection, actor: Actor, deed: Deed) -> None:
    """Write down a change in the transaction that makes it, and have others told of it."""
    deed_id = new_id()
    done = {
        "actor": actor.name,
        "origin": actor.origin,
        "action": deed.action,
        "target": deed.target,
        "detail": dict(deed.detail),
    }
    await connection.execute(insert(audit).values(tenant=actor.tenant, id=deed_id, **done))
    await _tell(connection, actor.tenant, deed_id, done)


async def _tell(connection: AsyncConnection, tenant: str, deed_id: str, done: Mapping[str, Any]) -> None:
    """Put an audit event into the outbox; its correlation id is that of the audit row."""
    await connection.execute(
        insert(audit_events).values(
            tenant=tenant,
            id=new_id(),
            correlation_id=deed_id,
            event_type=done["action"],
            source=SOURCE,
            payload={"tenant": tenant, **done},
        )
    )


async def latest(engine: AsyncEngine, tenant: str, *, limit: int) -> Sequence[AuditEntry]:
    """Return the latest changes that somebody of a tenant made, newest first."""
    query = select(audit).where(audit.c.tenant == tenant).order_by(audit.c.id.desc()).limit(limit)
    with translated():
        async with engine.connect() as connection:
            return [
                AuditEntry(
                    Actor(row.tenant, row.actor, row.origin), Deed(row.action, row.target, row.detail), row.created_at
                )
                for row in await connection.execute(query)
            ]
