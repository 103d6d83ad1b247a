"""Whether there is what a switch is about: a name that was mistyped switches nothing off."""

from dataclasses import dataclass

from brain.registry.custom_agents.service import pinned_agents
from brain.registry.manifest import Manifest, specialist_name
from brain.registry.repository import EpochRepository
from starling.core.principal import DEFAULT_TENANT, SHARED
from starling.infra.postgres.engine import Engine
from starling.infra.postgres.keys import KeyRepository
from starling.infra.postgres.kill_switches import SwitchKind, Target
from starling.infra.postgres.runs.listing import latest_runs


@dataclass(frozen=True, slots=True)
class MissingTarget:
    """What there isn't now. An agent or server is looked for among those of its tenant, `*` for any."""

    kind: SwitchKind
    name: str
    tenant: str = SHARED

    def __str__(self) -> str:
        whose = "" if self.tenant == SHARED else f" for tenant {self.tenant!r}"
        return f"{self.kind} {self.name!r}{whose}"


@dataclass(frozen=True, slots=True)
class SwitchTargets:
    """Looks up what there is now: in the active epoch, and among those who have a key or a run."""

    engine: Engine

    async def missing(self, target: Target) -> MissingTarget | None:
        """Return what of a switch's target there isn't, None where there is all of it.

        Raises DatabaseUnavailableError.
        """
        if not await self._has_tenant(target.owner):
            return MissingTarget("tenant", target.owner)
        if target.kind == "tenant":
            return None
        manifest = (await EpochRepository(self.engine).active()).manifest
        names = _servers(manifest, target.tenant) if target.kind == "server" else _agents(manifest, target.tenant)
        return None if target.name in names else MissingTarget(target.kind, target.name, target.tenant)

    async def _has_tenant(self, name: str) -> bool:
        if name in (SHARED, DEFAULT_TENANT):  # everybody, and this machine's own
            return True
        return bool(await KeyRepository(self.engine).every(name) or await latest_runs(self.engine, name, limit=1))


def _servers(manifest: Manifest, tenant: str) -> set[str]:
    return {name for name, entry in manifest.servers.items() if tenant == SHARED or entry.seen_by(tenant)}


def _agents(manifest: Manifest, tenant: str) -> set[str]:
    """Specialists, builtins, and the tenant's own."""
    own = {pin.name for pin in manifest.agents.values()} if tenant == SHARED else set(pinned_agents(manifest, tenant))
    return own | set(manifest.builtins) | {specialist_name(server) for server in _servers(manifest, tenant)}
