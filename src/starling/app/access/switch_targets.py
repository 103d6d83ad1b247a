"""Checks of kill-switch targets: a mistyped name would switch nothing off."""

from dataclasses import dataclass

from brain.registry.custom_agents import pinned_agents
from brain.registry.manifest import Manifest, specialist_name
from brain.registry.repository import EpochRepository
from brain.registry.team_cards import pinned_teams
from starling.core.principal import DEFAULT_TENANT, SHARED
from starling.infra.postgres.keys import KeyRepository
from starling.infra.postgres.kill_switches import SwitchKind, Target
from starling.infra.postgres.runs.listing import RunListing


@dataclass(frozen=True, slots=True)
class MissingTarget:
    """Something that does not exist now; agents and servers of `tenant`, `*` for any."""

    kind: SwitchKind
    name: str
    tenant: str = SHARED

    def __str__(self) -> str:
        scope = "" if self.tenant == SHARED else f" for tenant {self.tenant!r}"
        return f"{self.kind} {self.name!r}{scope}"


@dataclass(frozen=True, slots=True)
class SwitchTargets:
    """Looks targets up: servers and agents in the active epoch, tenants among those with a key or a run."""

    epochs: EpochRepository
    keys: KeyRepository
    listing: RunListing

    async def missing(self, target: Target) -> MissingTarget | None:
        """Return the part of `target` that does not exist, or None. Raises DatabaseUnavailableError."""
        if not await self._has_tenant(target.owner):
            return MissingTarget("tenant", target.owner)
        if target.kind == "tenant":
            return None
        manifest = (await self.epochs.active()).manifest
        names = _servers(manifest, target.tenant) if target.kind == "server" else _agents(manifest, target.tenant)
        return None if target.name in names else MissingTarget(target.kind, target.name, target.tenant)

    async def _has_tenant(self, name: str) -> bool:
        if name in (SHARED, DEFAULT_TENANT):
            return True
        return bool(await self.keys.every(name) or await self.listing.latest(name, limit=1))


def _servers(manifest: Manifest, tenant: str) -> set[str]:
    return {name for name, entry in manifest.servers.items() if tenant == SHARED or entry.seen_by(tenant)}


def _agents(manifest: Manifest, tenant: str) -> set[str]:
    """Return the names of specialists, built-in agents, and the tenant's own agents and teams."""
    tenants = {key.rpartition("/")[0] for key in (*manifest.agents, *manifest.teams)} if tenant == SHARED else {tenant}
    own = {name for one in tenants for name in (*pinned_agents(manifest, one), *pinned_teams(manifest, one))}
    return own | set(manifest.builtins) | {specialist_name(server) for server in _servers(manifest, tenant)}
