"""API keys in Postgres: only the hash of a key's secret is stored."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from sqlalchemy import ColumnElement, RowMapping, case, func, insert, literal, or_, select, true, update
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.core.errors import NotFoundError
from starling.core.principal import Grant, Scope
from starling.infra.postgres.audit import Actor, AuditedChange, record
from starling.infra.postgres.engine import EngineConnection, changing, reading
from starling.infra.postgres.kill_switches import NOTIFY_HALTS
from starling.infra.postgres.tables.access import keys

type KeyState = Literal["active", "expired", "revoked"]

_USE_INTERVAL: Final = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key to store; `hash` is the SHA-256 of its secret, `lifetime` None where it never expires."""

    id: str
    tenant: str
    name: str
    hash: bytes
    scopes: frozenset[Scope]
    grant: Grant | None
    lifetime: timedelta | None


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key as it is stored; `state` by the database's clock. `last_used_at` is accurate to five minutes."""

    id: str
    tenant: str
    name: str
    hash: bytes
    scopes: frozenset[Scope]
    grant: Grant | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    state: KeyState


_EXPIRED = keys.c.expires_at <= func.now()
_STATE = case((keys.c.revoked_at.is_not(None), literal("revoked")), (_EXPIRED, literal("expired")), else_="active")
_SELECT = select(keys, _STATE.label("state"))


class KeyRepository:
    """Keys in Postgres; ids are unique over all tenants. Raises DatabaseUnavailableError."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def create(self, key: NewKey, actor: Actor) -> StoredKey:
        """Store a key, with an audit entry."""
        values = {
            "id": key.id,
            "tenant": key.tenant,
            "name": key.name,
            "hash": key.hash,
            "scopes": sorted(key.scopes),
            "grants": key.grant.as_json() if key.grant else None,
            "expires_at": func.now() + key.lifetime if key.lifetime is not None else None,
        }
        detail = {"tenant": key.tenant, "name": key.name, "scopes": values["scopes"], "grants": values["grants"]}
        async with changing(self._engine) as connection:
            await connection.execute(insert(keys).values(values))
            await record(connection, actor, AuditedChange("key.create", key.id, detail))
            return _stored((await connection.execute(_SELECT.where(keys.c.id == key.id))).mappings().one())

    async def find(self, key_id: str) -> StoredKey | None:
        """Return a key by its id, whatever its state."""
        found = await self._rows(keys.c.id == key_id)
        return found[0] if found else None

    async def find_within(self, connection: EngineConnection, key_id: str) -> StoredKey | None:
        """Return a key by its id, whatever its state, as part of a transaction."""
        row = (await connection.execute(_SELECT.where(keys.c.id == key_id))).mappings().one_or_none()
        return None if row is None else _stored(row)

    async def every(self, tenant: str | None = None) -> Sequence[StoredKey]:
        """Return the keys of a tenant, or of all of them, oldest first."""
        return await self._rows(true() if tenant is None else keys.c.tenant == tenant)

    async def revoke(self, key_id: str, actor: Actor) -> StoredKey:
        """Revoke a key, with an audit entry; a revoked key is unchanged. Raises NotFoundError."""
        change = update(keys).where(keys.c.id == key_id, keys.c.revoked_at.is_(None)).values(revoked_at=func.now())
        async with changing(self._engine) as connection:
            changed = await connection.execute(change.returning(keys.c.tenant))
            for (tenant,) in changed:
                await record(connection, actor, AuditedChange("key.revoke", key_id, {"tenant": tenant}))
                await connection.execute(NOTIFY_HALTS)
            key = await self.find_within(connection, key_id)
        if key is None:
            raise NotFoundError("key", key_id, "`starling key list` shows the ids.")
        return key

    async def use(self, key_id: str) -> None:
        """Store the time of a key's use, at most once in five minutes."""
        long_ago = or_(keys.c.last_used_at.is_(None), keys.c.last_used_at < func.now() - _USE_INTERVAL)
        change = update(keys).where(keys.c.id == key_id, long_ago).values(last_used_at=func.now())
        async with changing(self._engine) as connection:
            await connection.execute(change)

    async def active(self, key_ids: Collection[str]) -> frozenset[str]:
        """Return those of the keys that are neither revoked nor expired."""
        return frozenset(key.id for key in await self._rows(keys.c.id.in_(key_ids)) if key.state == "active")

    async def any_active(self) -> bool:
        """Whether any key is active."""
        return bool(await self._rows(_STATE == "active"))

    async def _rows(self, condition: ColumnElement[bool]) -> list[StoredKey]:
        async with reading(self._engine) as connection:
            found = await connection.execute(_SELECT.where(condition).order_by(keys.c.created_at, keys.c.id))
            return [_stored(row) for row in found.mappings()]


def _stored(row: RowMapping) -> StoredKey:
    columns = {name: value for name, value in row.items() if name not in ("scopes", "grants")}
    return StoredKey(**columns, scopes=frozenset(map(Scope, row["scopes"])), grant=Grant.from_json(row["grants"]))
