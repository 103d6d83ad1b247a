"""Custom agents: configured by users, stored by content, bound to an epoch's tools when a run first needs them."""

from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from brain.registry.cards import BUILTINS, AgentCard
from brain.registry.manifest import AgentPin, Manifest
from brain.registry.repository import AgentRepository
from starling.core.agents import RESERVED, SPECIALIST_PREFIX, LLMAgentConfig, like_a_specialist
from starling.core.conversation.rendering import POLICIES, is_policy
from starling.core.errors import ForbiddenError, InvalidRequestError
from starling.core.look_alike_names import skeleton
from starling.core.model_output.names import plain_name
from starling.core.principal import Grant, Principal
from starling.core.text import one_line
from starling.core.tools import ToolDefinition

_EVERY = "*"
_UNDESCRIBED = "An agent that a user made, without an instruction of its own."
_DESCRIPTION_CHARS = 300


@dataclass(frozen=True, slots=True)
class ToolSelection:
    """The result of a look-up of tool names: the `(server, tool)` pairs found, and the names that match nothing."""

    found: tuple[tuple[str, str], ...]
    missing: tuple[str, ...]


def select_tools(names: Iterable[str], offer: Mapping[str, Collection[str]]) -> ToolSelection:
    """Look up `server.tool` and `server.*` in the tools of each server."""
    found: dict[tuple[str, str], None] = {}
    missing: list[str] = []
    for name in names:
        server, _, tool = name.partition(".")
        there = [one for one in offer.get(server, ()) if tool in (_EVERY, one)]
        found |= dict.fromkeys((server, one) for one in there)
        missing += [] if there else [name]
    return ToolSelection(tuple(found), tuple(missing))


def custom_card(
    config: LLMAgentConfig, cards: Mapping[str, AgentCard], others: Mapping[str, LLMAgentConfig]
) -> AgentCard:
    """Return the card of an agent beside the specialists in `cards` and the other custom agents of its tenant."""
    offer: dict[str, dict[str, ToolDefinition]] = {
        card.server: {tool.name: tool for tool in card.tools} for card in cards.values() if card.server
    }
    selection = select_tools(config.tools, offer)
    return AgentCard(
        name=config.id,
        kind="custom",
        description=described(config),
        tools=tuple(offer[server][tool] for server, tool in selection.found),
        degraded=degradation(config, selection, others),
        config=config,
        reviewer=others.get(config.reflection_agent_id or ""),
        runtime=config.runtime,
        persona=config.persona,
        reflect=config.reflect,
    )


def described(config: LLMAgentConfig) -> str:
    """Return the description of an agent: the beginning of its instruction."""
    return one_line(config.behavior_template or _UNDESCRIBED, _DESCRIPTION_CHARS)


def degradation(config: LLMAgentConfig, selection: ToolSelection, others: Container[str]) -> str:
    """Return why an agent can't work with the other agents of its tenant; empty if it can."""
    reasons: list[str] = []
    if selection.missing:
        reasons.append(f"It needs tools that aren't there: {', '.join(selection.missing)}.")
    if config.reflection_agent_id and config.reflection_agent_id not in others:
        reasons.append(f"There is no agent {config.reflection_agent_id!r} to review its results.")
    if config.render_policy and not is_policy(config.render_policy):
        reasons.append(f"There is no render policy {config.render_policy!r}.")
    return " ".join(reasons)


def pinned_agents(manifest: Manifest, tenant: str) -> dict[str, AgentPin]:
    """Return a tenant's custom agents by name."""
    return {pin.name: pin for pin in manifest.agents.values() if pin.tenant == tenant}


def with_agent(manifest: Manifest, pin: AgentPin) -> Manifest:
    """Return the manifest with an agent in this version and no other."""
    agents = {**manifest.agents, f"{pin.tenant}/{pin.name}": pin}
    return manifest.model_copy(update={"agents": dict(sorted(agents.items()))})


def without_agent(manifest: Manifest, tenant: str, name: str) -> Manifest:
    """Return the manifest without an agent."""
    gone = f"{tenant}/{name}"
    return manifest.model_copy(update={"agents": {key: pin for key, pin in manifest.agents.items() if key != gone}})


_RESERVED: Final = RESERVED | {card.name for card in BUILTINS}
_NAMES_SHOWN = 30


def checked(
    config: LLMAgentConfig, manifest: Manifest, maker: Principal, teams: Collection[str], agents: Collection[str]
) -> None:
    """Raise InvalidRequestError if the configuration names something unknown, or its own name is taken.

    `teams` and `agents` are the names of the tenant's, of archived ones too. The message lists known names as far as
    the grant allows.
    """
    tenant, grant = maker.tenant, maker.grant
    others = pinned_agents(manifest, tenant)
    if fault := _name_fault(config.id, manifest, teams):
        raise InvalidRequestError(f"The name {config.id!r} {fault}.", "Choose another `id`.")
    if config.id not in agents and (fault := _look_alike(config.id, manifest, tenant, grant, {*teams, *agents})):
        raise InvalidRequestError(f"The name {config.id!r} {fault}.", "Choose another `id`.")
    if config.render_policy and not is_policy(config.render_policy):
        raise _unknown("render_policy", config.render_policy, POLICIES)
    if config.reflection_agent_id and config.reflection_agent_id not in {config.id, *others}:
        raise _unknown("reflection_agent_id", config.reflection_agent_id, others)
    offer = offered(manifest, tenant)
    for server in config.servers:
        if server not in offer:
            raise _unknown("tools: server", server, [one for one in offer if grant is None or grant.reaches(one)])
    for name in select_tools(config.tools, offer).missing:
        there = [(server, f"{server}.{tool}") for server in config.servers for tool in offer[server]]
        raise _unknown("tools:", name, [tool for one, tool in there if grant is None or grant.permits(one, tool)])


def _name_fault(name: str, manifest: Manifest, teams: Collection[str]) -> str | None:
    """Return why an agent can't have a name."""
    if name in _RESERVED or name in manifest.builtins:
        return "belongs to a built-in agent"
    if like_a_specialist(name):
        return "is like those of the specialists of servers"
    return "belongs to a team" if name in teams else None


def _look_alike(name: str, manifest: Manifest, tenant: str, grant: Grant | None, others: Collection[str]) -> str | None:
    """Return why a new agent can't have a name that looks like another, which isn't named if it is beyond the grant."""
    look = skeleton(plain_name(name))
    if look.startswith(skeleton(plain_name(SPECIALIST_PREFIX))):
        return "looks like those of the specialists of servers"
    servers = offered(manifest, tenant)
    named = {*_RESERVED, *manifest.builtins, *(one for one in servers if grant is None or grant.reaches(one))}
    known = {*named, *servers, *others}
    alike = next((one for one in sorted(known) if skeleton(plain_name(one)) == look), None)
    return alike and (f"looks like {alike!r}" if grant is None or alike in named else "can't be used")


def granted(config: LLMAgentConfig, manifest: Manifest, tenant: str, grant: Grant | None) -> LLMAgentConfig:
    """Return the configuration with those of its tools that its maker may call. Raises ForbiddenError for none."""
    if grant is None:
        return config
    tools: dict[str, None] = {}
    offer = offered(manifest, tenant)
    for name in config.tools:
        server = name.partition(".")[0]
        if server in grant.servers:
            tools[name] = None
            continue
        pairs = select_tools([name], offer).found
        tools |= dict.fromkeys(f"{one}.{tool}" for one, tool in pairs if grant.permits(one, f"{one}.{tool}"))
    if config.tools and not tools:
        raise ForbiddenError(f"The key may call none of these tools: {', '.join(config.tools)}.")
    return config.model_copy(update={"tools": tuple(tools)})


def offered(manifest: Manifest, tenant: str) -> Mapping[str, Collection[str]]:
    """Return the tools of each server that a tenant sees."""
    return {name: entry.tools.keys() for name, entry in manifest.servers.items() if entry.seen_by(tenant)}


def _unknown(what: str, name: str, known: Collection[str]) -> InvalidRequestError:
    shown = sorted(known)[:_NAMES_SHOWN]
    more = f" and {len(known) - len(shown)} more" if len(known) > len(shown) else ""
    return InvalidRequestError(f"{what} {name!r} isn't there.", f"There are: {', '.join(shown) or 'none'}{more}.")


async def broken_agents(agents: AgentRepository, manifest: Manifest) -> Mapping[str, str]:
    """Return the agents of all tenants that can't work with what there would be, as `tenant/name`, each with why."""
    if not manifest.agents:
        return {}
    configs = await agents.pinned(manifest.agents.values())
    reasons = {
        f"{pin.tenant}/{pin.name}": degradation(
            config, select_tools(config.tools, offered(manifest, pin.tenant)), pinned_agents(manifest, pin.tenant)
        )
        for pin, config in configs.items()
    }
    return {name: reasons[name] for name in sorted(reasons) if reasons[name]}
