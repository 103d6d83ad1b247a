"""What is switched off: rows that count at once, in every process, for every run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

from sqlalchemy import Row, delete, func, select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.core.errors import NotFoundError
from starling.core.principal import SHARED
from starling.infra.postgres.audit import Actor, Deed, record
from starling.infra.postgres.engine import fetch_alone, translated
from starling.infra.postgres.tables import switches

type SwitchKind = Literal["tenant", "agent", "server"]

HALTS: Final = "starling_halts"  # rings where something was switched off or on, or a key was revoked
RING: Final = text(f"SELECT pg_notify('{HALTS}', '')")

_EVER: Final = datetime(2000, 1, 1, tzinfo=UTC)
_LONGEST: Final = timedelta(minutes=5)  # that a revocation may take to be seen; the limits of transactions are shorter
_MOMENT: Final = "moment"  # a row that is always there

_HALTED = f"""
SELECT tenant, kind, name, reason, now() FROM switches
UNION ALL SELECT tenant, 'key', id::text, '', now() FROM keys WHERE revoked_at >= %(since)s
UNION ALL SELECT '', '{_MOMENT}', '', '', now()"""  # noqa: S608 - our own text


@dataclass(frozen=True, slots=True)
class Target:
    """What a switch is about: an agent or server by name, for one tenant or for all (`*`), or a whole tenant."""

    kind: SwitchKind
    name: str
    tenant: str = SHARED

    @property
    def owner(self) -> str:
        """The tenant that it concerns: for a tenant's own switch, that one."""
        return self.name if self.kind == "tenant" else self.tenant

    def __str__(self) -> str:
        whose = "" if self.kind == "tenant" or self.tenant == SHARED else f" of tenant {self.tenant}"
        return f"{self.kind} {self.name}{whose}"


@dataclass(frozen=True, slots=True)
class Switch:
    """Something that is switched off: why, by whom and since when."""

    target: Target
    reason: str
    actor: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Halted:
    """All that was halted `at` a moment: the reasons of switches by tenant, kind and name, the ids of revoked keys."""

    switches: Mapping[tuple[str, str, str], str]
    revoked: frozenset[str]
    at: datetime


NOTHING: Final = Halted({}, frozenset(), _EVER)


class SwitchRepository:
    """Switches in Postgres. Each change says who made it, and rings in every process once it is committed."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def every(self) -> Sequence[Switch]:
        """Return what is switched off, the latest first."""
        with translated():
            async with self._engine.connect() as connection:
                rows = await connection.execute(select(switches).order_by(switches.c.created_at.desc()))
                return [_switch(row) for row in rows]

    async def off(self, target: Target, reason: str, actor: Actor) -> Switch:
        """Switch something off, or give another reason why it is."""
        key = {"tenant": target.owner, "kind": target.kind, "name": target.name}
        said = {"reason": reason, "actor": actor.name}
        statement = insert(switches).values(**key, **said)
        statement = statement.on_conflict_do_update(index_elements=list(key), set_=said | {"created_at": func.now()})
        with translated():
            async with self._engine.begin() as connection:
                row = (await connection.execute(statement.returning(switches))).one()
                await record(connection, actor, Deed("switch.off", str(target), key | {"reason": reason}))
                await connection.execute(RING)
                return _switch(row)

    async def on(self, target: Target, actor: Actor) -> None:
        """Switch something on again. Raises NotFoundError where it isn't off."""
        key = {"tenant": target.owner, "kind": target.kind, "name": target.name}
        conditions = [switches.c[column] == value for column, value in key.items()]
        with translated():
            async with self._engine.begin() as connection:
                if not (await connection.execute(delete(switches).where(*conditions))).rowcount:
                    raise NotFoundError("switch", str(target), "`starling switch list` shows what is switched off.")
                await record(connection, actor, Deed("switch.on", str(target), key))
                await connection.execute(RING)

    async def halted(self, known: Halted = NOTHING) -> Halted:
        """Return all that is halted at this moment. Of the revoked keys only those are read that may not be `known`."""
        with translated():
            rows = await fetch_alone(self._engine, _HALTED, {"since": known.at - _LONGEST})
        reasons = {(tenant, kind, name): reason for tenant, kind, name, reason, _ in rows}
        revoked = {name for _, kind, name in reasons if kind == "key"}
        off = {key: reason for key, reason in reasons.items() if key[1] not in ("key", _MOMENT)}
        return Halted(off, known.revoked | revoked, at=rows[0][-1])


def _switch(row: Row[Any]) -> Switch:
    return Switch(Target(row.kind, row.name, row.tenant), row.reason, row.actor, row.created_at)
