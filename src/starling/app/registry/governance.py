"""The governance table of the active epoch, its rows by tenant, and what another table would change."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from brain.registry.manifest import Manifest, specialist_name
from brain.registry.repository import EpochRepository
from starling.core.errors import InvalidRequestError
from starling.core.governance import CELLS, GovernanceRow, GovernanceTable


@dataclass(frozen=True, slots=True)
class GovernanceInForce:
    """The table of the active epoch as it is written, and what it allows in each cell, `MODE/CHANNEL`.

    The cells are those of the requests of a `tenant`; without one, of tenants without rows of their own. Limits of the
    platform and of a request hold besides.
    """

    epoch: int
    tenant: str
    table: GovernanceTable
    cells: Mapping[str, GovernanceRow]


@dataclass(frozen=True, slots=True)
class GovernanceChange:
    """The written value of a member of a row before and after; null where there is none."""

    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class GovernanceCheck:
    """What a table would change of that of the active epoch, by place, and what is wrong with it.

    A table with `faults` is refused: they name what there isn't. `warnings` name bounds of tenants that have no effect.
    """

    epoch: int
    changes: Mapping[str, GovernanceChange]
    faults: Sequence[str]
    warnings: Sequence[str]


@dataclass(frozen=True, slots=True)
class GovernanceDocuments:
    """Reads the table in force."""

    epochs: EpochRepository

    async def show(self, tenant: str = "") -> GovernanceInForce:
        """Return the table of the active epoch with what it allows a tenant."""
        active = await self.epochs.active()
        table = active.manifest.governance
        cells = {f"{mode}/{channel}": table.row(mode, channel, tenant) for mode, channel in CELLS}
        return GovernanceInForce(active.number, tenant, table, cells)

    async def check(self, table: GovernanceTable) -> GovernanceCheck:
        """Return what a reload with this table would change."""
        active = await self.epochs.active()
        before, after = active.manifest.governance.written(), table.written()
        changes = {
            place: GovernanceChange(before.get(place), after.get(place))
            for place in sorted(before.keys() | after.keys())
            if before.get(place) != after.get(place)
        }
        faults = [*unknown_names(table, active.manifest)]
        return GovernanceCheck(active.number, changes, faults, [*table.ineffective()])


def with_governance(manifest: Manifest, table: GovernanceTable | None, *, checked: bool = True) -> Manifest:
    """Return the manifest with a table, or as it is without one.

    Raises InvalidRequestError where a `checked` table names what the manifest hasn't.
    """
    if table is None:
        return manifest
    if checked and (faults := [*unknown_names(table, manifest)]):
        raise InvalidRequestError(f"The governance table is wrong: {'; '.join(faults)}.", "Nothing was changed.")
    return manifest.model_copy(update={"governance": table})


def unknown_names(table: GovernanceTable, manifest: Manifest) -> Iterator[str]:
    """Yield the servers, tools and agents that rows name and that there aren't, with their places.

    Of a server that couldn't be listed no tools are known.
    """
    shared = {*manifest.builtins, *map(specialist_name, manifest.servers)}
    for tenant, rows in {"": table, **table.tenants}.items():
        own = {name.removeprefix(f"{tenant}/") for name in (*manifest.agents, *manifest.teams) if tenant}
        for at, row in rows.places():
            place = f"tenants.{tenant}.{at}" if tenant else at
            if row.direct_agent and row.direct_agent not in shared | own:
                whose = "" if tenant else " of all tenants"
                yield f"{place}.direct_agent: there is no agent {row.direct_agent!r}{whose}"
            for full_name in row.tools or ():
                server, _, tool = full_name.partition(".")
                entry = manifest.servers.get(server)
                if entry is None:
                    yield f"{place}.tools: there is no server {server!r}"
                elif tool != "*" and entry.tools and tool not in entry.tools:
                    yield f"{place}.tools: there is no tool {full_name!r}"
