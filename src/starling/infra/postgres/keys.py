"""API keys in Postgres: only the hash of a key's secret is stored."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from sqlalchemy import ColumnElement, RowMapping, case, func, insert, literal, or_, select, true, update
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.core.errors import NotFoundError
from starling.core.principal import Grant, Principal, Scope
from starling.infra.postgres.audit import LOCAL, Actor, AuditedChange, record
from starling.infra.postgres.console_sessions import ConsoleSessionRepository
from starling.infra.postgres.engine import EngineConnection, changing, reading
from starling.infra.postgres.kill_switches import NOTIFY_HALTS
from starling.infra.postgres.tables.access import keys

type KeyState = Literal["active", "expired", "revoked"]

_USE_INTERVAL: Final = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class KeySpec:
    """A key to create. Without `lifetime` it never expires; without `grant` it reaches every server."""

    name: str
    tenant: str
    scopes: frozenset[Scope]
    grant: Grant | None = None
    lifetime: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key without its secret. `grant` is null where its runs may call everything.

    `state` is by the database's clock, `last_used_at` accurate to five minutes.
    """

    id: str
    tenant: str
    name: str
    state: KeyState
    scopes: Sequence[Scope]
    grant: Mapping[str, Sequence[str]] | None
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None

    @property
    def principal(self) -> Principal:
        """The caller that sends this key."""
        return Principal(self.tenant, self.id, frozenset(self.scopes), Grant.from_json(self.grant))


_EXPIRED = keys.c.expires_at <= func.now()
_STATE = case((keys.c.revoked_at.is_not(None), literal("revoked")), (_EXPIRED, literal("expired")), else_="active")
_SHOWN = (
    *(keys.c.id, keys.c.tenant, keys.c.name, keys.c.scopes, keys.c.grants.label("grant"), _STATE.label("state")),
    *(keys.c.created_at, keys.c.expires_at, keys.c.last_used_at),
)
_SELECT = select(*_SHOWN)


class KeyRepository:
    """Keys in Postgres, and the `sessions` of the console that were begun with them; ids are unique over all tenants.

    Raises DatabaseUnavailableError.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self.sessions = ConsoleSessionRepository(engine)
        self._engine = engine

    async def create(
        self, key_id: str, secret_hash: bytes, spec: KeySpec, actor: Actor, check: Callable[[ApiKey | None], None]
    ) -> ApiKey:
        """Store a key, with an audit entry.

        `check` gets the actor's own key, if it has one, and may raise; no revocation is committed from then on.
        """
        detail = {
            "tenant": spec.tenant,
            "name": spec.name,
            "scopes": sorted(spec.scopes),
            "grants": spec.grant.as_json() if spec.grant else None,
        }
        expires_at = func.now() + spec.lifetime if spec.lifetime is not None else None
        new = insert(keys).values(id=key_id, hash=secret_hash, expires_at=expires_at, **detail)
        async with changing(self._engine) as connection:
            check(None if actor.name == LOCAL else await self.find_within(connection, actor.name, lock=True))
            made = await connection.execute(new.returning(*_SHOWN))
            await record(connection, actor, AuditedChange("key.create", key_id, detail))
            return _key(made.mappings().one())

    async def find_with_hash(self, key_id: str) -> tuple[ApiKey, bytes] | None:
        """Return a key by its id, whatever its state, and the SHA-256 of its secret."""
        async with reading(self._engine) as connection:
            found = await connection.execute(_SELECT.add_columns(keys.c.hash).where(keys.c.id == key_id))
            row = found.mappings().one_or_none()
            return None if row is None else (_key(row), row["hash"])

    async def find_within(self, connection: EngineConnection, key_id: str, *, lock: bool = False) -> ApiKey | None:
        """Return a key by its id, whatever its state, as part of a transaction; `lock` keeps it as it is until then."""
        query = _SELECT.where(keys.c.id == key_id)
        found = await connection.execute(query.with_for_update(read=True) if lock else query)
        return next(map(_key, found.mappings()), None)

    async def every(self, tenant: str | None = None) -> Sequence[ApiKey]:
        """Return the keys of a tenant, or of all of them, oldest first."""
        return await self._rows(_of(tenant))

    async def revoke(self, key_id: str, actor: Actor, tenant: str | None) -> ApiKey:
        """Revoke a key, with an audit entry, unless it is of another tenant; a revoked key is unchanged.

        Raises NotFoundError.
        """
        change = update(keys).where(keys.c.id == key_id, keys.c.revoked_at.is_(None), _of(tenant))
        async with changing(self._engine) as connection:
            changed = (await connection.execute(change.values(revoked_at=func.now()))).rowcount
            key = await self.find_within(connection, key_id)
            if key is None or tenant not in (None, key.tenant):
                raise NotFoundError("key", key_id, "`starling key list` and `GET /v1/keys` show the ids.")
            if changed:
                await record(connection, actor, AuditedChange("key.revoke", key_id, {"tenant": key.tenant}))
                await connection.execute(NOTIFY_HALTS)
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

    async def _rows(self, condition: ColumnElement[bool]) -> list[ApiKey]:
        async with reading(self._engine) as connection:
            found = await connection.execute(_SELECT.where(condition).order_by(keys.c.created_at, keys.c.id))
            return list(map(_key, found.mappings()))


def _of(tenant: str | None) -> ColumnElement[bool]:
    return true() if tenant is None else keys.c.tenant == tenant


def _key(row: RowMapping) -> ApiKey:
    columns: dict[str, Any] = {column.name: row[column.name] for column in _SHOWN}
    columns["scopes"] = tuple(map(Scope, row["scopes"]))
    return ApiKey(**columns)
