"""The custom agents of a tenant in an epoch, loaded when its roster is first asked for."""

from collections.abc import Collection

from brain.registry.cards import Roster
from brain.registry.custom_agents.binding import custom_card
from brain.registry.custom_agents.repository import AgentRepository
from brain.registry.manifest import AgentPin, Manifest


def pinned_agents(manifest: Manifest, tenant: str) -> dict[str, AgentPin]:
    """Return a tenant's custom agents by name."""
    return {pin.name: pin for pin in manifest.agents.values() if pin.tenant == tenant}


def with_agent(manifest: Manifest, pin: AgentPin) -> Manifest:
    """Return the manifest with an agent in this version and no other."""
    agents = {**manifest.agents, _key(pin.tenant, pin.name): pin}
    return manifest.model_copy(update={"agents": dict(sorted(agents.items()))})


def without_agent(manifest: Manifest, tenant: str, name: str) -> Manifest:
    """Return the manifest without an agent."""
    gone = _key(tenant, name)
    return manifest.model_copy(update={"agents": {key: pin for key, pin in manifest.agents.items() if key != gone}})


class CustomAgents:
    """Adds to the roster of an epoch what a tenant made itself; each pair of both is put together once."""

    def __init__(self, repository: AgentRepository) -> None:
        self._repository = repository
        self._rosters: dict[tuple[int, str], Roster] = {}

    async def added(self, epoch: int, manifest: Manifest, roster: Roster, tenant: str) -> Roster:
        """Return the tenant's roster, made of what it sees of the servers and builtins and of its own agents."""
        key = epoch, tenant
        if key not in self._rosters:
            self._rosters[key] = await self._added(manifest, roster, tenant)
        return self._rosters[key]

    def keep_only(self, epochs: Collection[int]) -> None:
        """Forget what was put together for other epochs."""
        self._rosters = {key: roster for key, roster in self._rosters.items() if key[0] in epochs}

    async def _added(self, manifest: Manifest, roster: Roster, tenant: str) -> Roster:
        pins = pinned_agents(manifest, tenant)
        if not pins:
            return roster
        stored = await self._repository.configs(tenant, {pin.hash for pin in pins.values()})
        configs = {name: stored[pin.hash] for name, pin in pins.items()}
        own = {name: custom_card(config, roster.cards, configs) for name, config in configs.items()}
        return Roster({**own, **roster.cards})


def _key(tenant: str, name: str) -> str:
    return f"{tenant}/{name}"
