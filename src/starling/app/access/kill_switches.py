"""Kill switches: what is halted, at most two seconds behind the database, and whether the target of a switch exists."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Literal

from brain.registry.custom_agents import pinned_agents
from brain.registry.manifest import Manifest, specialist_name
from brain.registry.repository import EpochRepository
from brain.registry.team_cards import pinned_teams
from starling.core.background_tasks import in_background
from starling.core.errors import DatabaseUnavailableError
from starling.core.principal import DEFAULT_TENANT, SHARED
from starling.core.tools import Halts, ToolCall
from starling.infra.postgres.keys import KeyRepository
from starling.infra.postgres.kill_switches import HALTS, NOTHING, Halted, SwitchRepository, Target
from starling.infra.postgres.notifications import NotificationHub
from starling.infra.postgres.runs.listing import RunListing

_POLL_SECONDS = 1.8  # in case a notification is lost


class KnownHalts(Halts):
    """What was halted when it was read."""

    def __init__(self, halted: Halted = NOTHING) -> None:
        self._halted = halted

    def reason(self, call: ToolCall) -> str:
        if not self._halted.switches and not self._halted.revoked:
            return ""
        return (
            self.everything(call.tenant, call.caller)
            or self._off("server", call.tool.server, call.tenant)
            or next(filter(None, (self._off("agent", name, call.tenant) for name in call.teams or (call.agent,))), "")
        )

    def everything(self, tenant: str, caller: str) -> str:
        if caller in self._halted.revoked:
            return f"The key {caller}, which this run was requested with, was revoked."
        return self._off("tenant", tenant, tenant) or self._off("tenant", SHARED, SHARED)

    def named(self, kind: Literal["agent", "server"], tenant: str) -> Mapping[str, str]:
        return {
            name: _message(kind, name, reason)
            for (owner, what, name), reason in self._halted.switches.items()
            if what == kind and owner in (tenant, SHARED)
        }

    def _off(self, kind: str, name: str, tenant: str) -> str:
        for owner in (tenant, SHARED):
            if (owner, kind, name) in self._halted.switches:
                return _message(kind, name, self._halted.switches[owner, kind, name])
        return ""


class KillSwitchCache(KnownHalts):
    """Answers from memory what is halted. While Postgres is away, the last known state applies."""

    def __init__(self, repository: SwitchRepository) -> None:
        super().__init__()
        self._repository = repository

    async def refresh(self) -> None:
        """Read the current state. Raises DatabaseUnavailableError."""
        self._halted = await self._repository.halted(self._halted)

    @asynccontextmanager
    async def listening(self, hub: NotificationHub) -> AsyncGenerator[None]:
        """Follow the database for as long as the context lasts."""
        await self.refresh()
        async with in_background(self._listen(hub), "follow-switches"):
            yield

    async def _listen(self, hub: NotificationHub) -> None:
        async with aclosing(hub.notices(HALTS, at_least_every=_POLL_SECONDS)) as notices:
            async for _ in notices:
                with suppress(DatabaseUnavailableError):
                    await self.refresh()


async def halts_now(repository: SwitchRepository) -> Halts:
    """Return what is halted at this moment. Raises DatabaseUnavailableError."""
    return KnownHalts(await repository.halted())


def _message(kind: str, name: str, reason: str) -> str:
    what = "Everything" if name == SHARED else f"The {kind} {name}"
    return f"{what} is switched off: {reason}"


@dataclass(frozen=True, slots=True)
class SwitchTargets:
    """Looks targets up: servers and agents in the active epoch, tenants among those with a key or a run."""

    epochs: EpochRepository
    keys: KeyRepository
    listing: RunListing

    async def missing(self, target: Target) -> Target | None:
        """Return the part of `target` that does not exist, or None. Raises DatabaseUnavailableError."""
        known = target.owner in (SHARED, DEFAULT_TENANT) or await self.keys.every(target.owner)
        if not known and not await self.listing.latest(target.owner, limit=1):
            return Target("tenant", target.owner)
        if target.kind == "tenant":
            return None
        manifest = (await self.epochs.active()).manifest
        names = _servers(manifest, target.tenant) if target.kind == "server" else _agents(manifest, target.tenant)
        return None if target.name in names else target


def _servers(manifest: Manifest, tenant: str) -> set[str]:
    return {name for name, entry in manifest.servers.items() if tenant == SHARED or entry.seen_by(tenant)}


def _agents(manifest: Manifest, tenant: str) -> set[str]:
    """Return the names of specialists, built-in agents, and the tenant's own agents and teams."""
    tenants = {key.rpartition("/")[0] for key in (*manifest.agents, *manifest.teams)} if tenant == SHARED else {tenant}
    own = {name for one in tenants for name in (*pinned_agents(manifest, one), *pinned_teams(manifest, one))}
    return own | set(manifest.builtins) | {specialist_name(server) for server in _servers(manifest, tenant)}
