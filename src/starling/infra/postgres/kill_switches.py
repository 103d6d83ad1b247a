"""Kill switches in Postgres: each applies at once, in every process, to every run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

from sqlalchemy import delete, func, select, text
from sqlalchemy.dialects.postgresql import insert

from starling.core.errors import NotFoundError
from starling.core.principal import SHARED
from starling.infra.postgres.audit import Actor, AuditedChange, record
from starling.infra.postgres.engine import EngineConnection, Repository, driver, fetch_autocommit
from starling.infra.postgres.tables.access import switches

type SwitchKind = Literal["tenant", "agent", "server"]

HALTS: Final = "starling_halts"  # notified when something is switched off or on, or a key is revoked
NOTIFY_HALTS: Final = text(f"SELECT pg_notify('{HALTS}', '')")

_LONG_AGO: Final = datetime(2000, 1, 1, tzinfo=UTC)
# The most between `revoked_at` and its commit: the time limits of transactions are shorter.
_REVOCATION_OVERLAP: Final = timedelta(minutes=5)
_NOW_ROW: Final = "moment"  # kind of the row that only carries the time

_HALTED = f"""
SELECT tenant, kind, name, reason, now() FROM switches
UNION ALL SELECT tenant, 'key', id::text, '', now() FROM keys WHERE revoked_at >= %(since)s
UNION ALL SELECT '', '{_NOW_ROW}', '', '', now()"""  # noqa: S608 - a constant


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a switch: an agent or server by name, for one tenant or for all (`*`), or a whole tenant."""

    kind: SwitchKind
    name: str
    tenant: str = SHARED

    @property
    def owner(self) -> str:
        """The tenant it applies to; for a switch of a whole tenant, that tenant."""
        return self.name if self.kind == "tenant" else self.tenant

    def __str__(self) -> str:
        whose = "" if self.kind == "tenant" or self.tenant == SHARED else f" of tenant {self.tenant}"
        return f"{self.kind} {self.name}{whose}"


@dataclass(frozen=True, slots=True)
class Switch:
    """Something that is switched off: why, by whom and since when."""

    kind: SwitchKind
    name: str
    tenant: str
    reason: str
    actor: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Halted:
    """All that was halted `at` a moment: the reasons of switches by tenant, kind and name, the ids of revoked keys."""

    switches: Mapping[tuple[str, str, str], str]
    revoked: frozenset[str]
    at: datetime


NOTHING: Final = Halted({}, frozenset(), _LONG_AGO)


class SwitchRepository(Repository):
    """Switches in Postgres. Each change writes an audit entry and notifies every process when it is committed."""

    async def every(self) -> Sequence[Switch]:
        """Return all switches that are off, newest first."""
        async with self.reading() as connection:
            rows = await connection.execute(select(switches).order_by(switches.c.created_at.desc()))
            return [Switch(**row) for row in rows.mappings()]

    async def off(self, target: Target, reason: str, actor: Actor) -> Switch:
        """Switch a target off, or replace the reason if it is off."""
        key = {"tenant": target.owner, "kind": target.kind, "name": target.name}
        values = {"reason": reason, "actor": actor.name}
        statement = insert(switches).values(**key, **values)
        statement = statement.on_conflict_do_update(index_elements=list(key), set_=values | {"created_at": func.now()})
        async with self.changing() as connection:
            row = (await connection.execute(statement.returning(switches))).mappings().one()
            await record(connection, actor, AuditedChange("switch.off", str(target), key | {"reason": reason}))
            await connection.execute(NOTIFY_HALTS)
            return Switch(**row)

    async def on(self, target: Target, actor: Actor) -> None:
        """Switch a target on again. Raises NotFoundError if it isn't off."""
        key = {"tenant": target.owner, "kind": target.kind, "name": target.name}
        conditions = [switches.c[column] == value for column, value in key.items()]
        async with self.changing() as connection:
            if not (await connection.execute(delete(switches).where(*conditions))).rowcount:
                raise NotFoundError("switch", str(target), "`starling switch list` shows what is switched off.")
            await record(connection, actor, AuditedChange("switch.on", str(target), key))
            await connection.execute(NOTIFY_HALTS)

    async def halted(self, known: Halted = NOTHING) -> Halted:
        """Return everything that is halted now. Reads only revoked keys that may be missing in `known`."""
        rows = await fetch_autocommit(self._engine, _HALTED, {"since": known.at - _REVOCATION_OVERLAP})
        return _halted(rows, known)


async def halted_within(connection: EngineConnection) -> Halted:
    """Return everything that is halted, as part of a transaction."""
    cursor = await (await driver(connection)).execute(_HALTED, {"since": _LONG_AGO})
    return _halted(await cursor.fetchall(), NOTHING)


def _halted(rows: Sequence[tuple[Any, ...]], known: Halted) -> Halted:
    reasons = {(tenant, kind, name): reason for tenant, kind, name, reason, _ in rows}
    revoked = {name for _, kind, name in reasons if kind == "key"}
    off = {key: reason for key, reason in reasons.items() if key[1] not in ("key", _NOW_ROW)}
    return Halted(off, known.revoked | revoked, at=rows[0][-1])
