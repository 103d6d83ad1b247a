"""From an epoch to the roster of a run."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from brain.prompts import PromptSet
from brain.registry.cards import BUILTINS, AgentCard, Roster
from brain.registry.custom_agents import custom_card, pinned_agents
from brain.registry.manifest import Manifest, ServerEntry, ToolPin, specialist_name
from brain.registry.prompt_versions import kept_prompts, pinned_prompts, stored_prompts
from brain.registry.repository import AgentRepository, EpochRepository, PromptRepository, StarRepository
from brain.registry.team_cards import pinned_teams, team_card, tools_of
from starling.core.governance import GovernanceTable
from starling.core.json import digest
from starling.core.json_schemas.subschemas import all_of, replaced
from starling.core.llm import PromptVersion
from starling.core.tool_calls import Effect
from starling.core.tools import ToolDefinition, hinted_effect, own_name_of

_EPOCHS_KEPT = 16
_BUILTINS = {card.name: card for card in BUILTINS}


def with_servers(manifest: Manifest, servers: Mapping[str, ServerEntry]) -> Manifest:
    """Return the manifest with these servers, with the builtins that this version has and the prompts that it pins."""
    ours = {"builtins": tuple(sorted(_BUILTINS)), **kept_prompts(manifest)}
    return manifest.model_copy(update={"servers": dict(sorted(servers.items())), **ours})


@dataclass(frozen=True, slots=True)
class _EpochParts:
    manifest: Manifest
    roster: Roster
    prompts: PromptSet


class Registry:
    """Hands out the rosters and prompts of epochs, built once each, and for each tenant that asks for them."""

    def __init__(
        self, repository: EpochRepository, agents: AgentRepository, stars: StarRepository, prompts: PromptRepository
    ) -> None:
        self._repository = repository
        self._agents = agents
        self._stars = stars
        self._prompts = prompts
        self._epochs: dict[int, _EpochParts] = {}
        self._tenants: dict[tuple[int, str], Roster] = {}

    async def roster(self, epoch: int, tenant: str) -> Roster:
        """Return what a tenant's runs see of an epoch. Raises NotFoundError."""
        if (epoch, tenant) not in self._tenants:
            built = self._epochs.get(epoch) or await self._built(epoch)
            self._tenants[epoch, tenant] = await self._of_tenant(built, tenant)
        return self._tenants[epoch, tenant]

    async def prompts(self, epoch: int) -> PromptSet:
        """Return the prompts that runs of an epoch work with. Raises NotFoundError."""
        return (self._epochs.get(epoch) or await self._built(epoch)).prompts

    async def governance(self, epoch: int) -> GovernanceTable:
        """Return what the requests of an epoch's runs are allowed. Raises NotFoundError."""
        return (self._epochs.get(epoch) or await self._built(epoch)).manifest.governance

    async def governance_in_force(self) -> GovernanceTable:
        """Return what requests are allowed that begin now: the table of the active epoch."""
        return (await self._repository.active()).manifest.governance

    async def with_stars(self, roster: Roster, tenant: str, hashes: Collection[str]) -> Roster:
        """Return a roster with teams of these stars in place of those of the same names."""
        if not hashes:
            return roster
        stars, tools = await self._stars.stars(tenant, hashes), tools_of(roster.cards)
        return Roster({**roster.cards, **{star.name: team_card(star, tools) for star in stars.values()}})

    async def with_prompts(self, prompts: PromptSet, hashes: Mapping[str, str]) -> PromptSet:
        """Return prompts with the stored texts of these hashes, by name."""
        versions = {name: PromptVersion(name, pin) for name, pin in hashes.items()}
        return PromptSet({**prompts.pinned, **await stored_prompts(versions, self._prompts)}) if hashes else prompts

    def keep_only(self, epochs: Collection[int]) -> None:
        """Forget what was built for other epochs."""
        self._epochs = {number: built for number, built in self._epochs.items() if number in epochs}
        self._tenants = {key: built for key, built in self._tenants.items() if key[0] in epochs}

    async def _built(self, epoch: int) -> _EpochParts:
        manifest = (await self._repository.get(epoch)).manifest
        definitions = await self._repository.definitions(manifest)
        cards: list[AgentCard] = []
        for server, entry in manifest.servers.items():
            pins = {name: pin for name, pin in entry.tools.items() if (server, name) in definitions}
            tools = tuple(_tool(server, name, pin, definitions[server, name]) for name, pin in pins.items())
            description = entry.description or server
            cards.append(AgentCard(specialist_name(server), "specialist", description, server, tools))
        cards += [_BUILTINS[name] for name in manifest.builtins if name in _BUILTINS]
        roster = Roster({card.name: card for card in cards})
        built = _EpochParts(manifest, roster, await pinned_prompts(manifest, self._prompts))
        self._epochs[epoch] = built
        self.keep_only(sorted(self._epochs)[-_EPOCHS_KEPT:])  # maybe without this one, where a run is that far behind
        return built

    async def _of_tenant(self, built: _EpochParts, tenant: str) -> Roster:
        """Return what a tenant sees of the servers and builtins, with its own agents and teams."""
        manifest, roster = built.manifest, built.roster
        if hidden := {specialist_name(name) for name, entry in manifest.servers.items() if not entry.seen_by(tenant)}:
            roster = Roster({name: card for name, card in roster.cards.items() if name not in hidden})
        if own := pinned_agents(manifest, tenant):
            stored = await self._agents.pinned(own.values())
            configs = {name: stored[pin] for name, pin in own.items()}
            cards = {name: custom_card(config, roster.cards, configs) for name, config in configs.items()}
            roster = Roster({**cards, **roster.cards})
        if not (pins := pinned_teams(manifest, tenant)):
            return roster
        stars = await self._stars.stars(tenant, frozenset(pins.values()))
        tools = tools_of(roster.cards)
        teams = {name: team_card(stars[pin], tools) for name, pin in pins.items()}
        return Roster({**roster.cards, **teams})


def _tool(server: str, name: str, pin: ToolPin, definition: Mapping[str, Any]) -> ToolDefinition:
    narrowing = (pin.input_schema, pin.output_schema)
    return ToolDefinition(
        server=server,
        name=name,
        description=pin.description or definition.get("description") or "",
        input_schema=without_titles(pin.input_schema or definition.get("inputSchema") or {"type": "object"}),
        output_schema=pin.output_schema or definition.get("outputSchema"),
        effect=pin.effect,
        hash=pin.hash,
        narrowing="" if narrowing == (None, None) else digest(narrowing),
        reflect=pin.reflect,
        own_name=own_name_of(name, definition),
        declared=pin.effect is not Effect.UNSAFE or bool(pin.declared),
        hinted=hinted_effect(definition),
    )


def without_titles(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a tool's schema without titles: libraries make them of its members' names, and they lengthen prompts."""
    try:
        found = replaced(schema, {id(part): without_titles(part) for part in all_of(schema)})
    except RecursionError:  # no endpoint takes a schema that is nested so deeply
        return schema
    return {name: value for name, value in found.items() if name != "title" or not isinstance(value, str)}
