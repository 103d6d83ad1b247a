"""Validation of a custom agent's configuration, and its restriction to what its maker may call."""

from collections.abc import Collection, Mapping
from typing import Final

from brain.conversation.rendering import POLICIES
from brain.registry.cards import BUILTINS
from brain.registry.custom_agents.binding import select_tools
from brain.registry.custom_agents.service import pinned_agents
from brain.registry.manifest import Manifest
from starling.core.agents import LLMAgentConfig, like_a_specialist
from starling.core.errors import ForbiddenError, InvalidRequestError
from starling.core.model_output.names import plain_name
from starling.core.principal import Grant

_RESERVED: Final = frozenset({"architect", "supervisor", "qa"}) | {card.name for card in BUILTINS}
_NAMES_SHOWN = 30


def checked(
    config: LLMAgentConfig, manifest: Manifest, tenant: str, grant: Grant | None, teams: Collection[str]
) -> None:
    """Raise InvalidRequestError if the configuration names something unknown, or its own name is taken.

    `teams` are the names of the tenant's teams. The message lists known names as far as the grant allows.
    """
    if fault := _name_fault(config.id, manifest, teams):
        raise InvalidRequestError(f"The name {config.id!r} {fault}.", "Choose another `id`.")
    if config.render_policy and config.render_policy not in POLICIES:
        raise _unknown("render_policy", config.render_policy, POLICIES)
    others = pinned_agents(manifest, tenant)
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
    if name in teams:
        return "belongs to a team"
    alike = next((team for team in sorted(teams) if plain_name(team) == plain_name(name)), None)
    return alike and f"differs from that of the team {alike!r} only in separators, so models confuse them"


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
