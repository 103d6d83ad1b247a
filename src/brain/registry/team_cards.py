"""The teams of a tenant: the cards made of their stars and the tools that the epoch pins."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from brain.registry.card_text import shortened
from brain.registry.cards import AgentCard, with_members
from brain.registry.custom_agents import offered
from brain.registry.manifest import Manifest
from brain.registry.repository import StarRepository
from starling.core.teams.stars import Member, StarSpec
from starling.core.tool_calls import MemberApproval
from starling.core.tools import ToolDefinition

type Tools = Mapping[str, Mapping[str, ToolDefinition]]
"""The tools of each server by their full names."""

_DESCRIPTION_CHARS = 300


def tools_of(cards: Mapping[str, AgentCard]) -> Tools:
    """Return the tools of the servers whose specialists are among `cards`."""
    return {card.server: {tool.full_name: tool for tool in card.tools} for card in cards.values() if card.server}


def team_card(star: StarSpec, tools: Tools) -> AgentCard:
    """Return the card of a team. Members whose server or tools are not among `tools` are degraded."""
    return _bound(AgentCard(star.name, "team", star.purpose), star, tools)


def missing_tools(star: StarSpec, tools: Mapping[str, Collection[str]]) -> Mapping[str, str]:
    """Return which members lack a server or tools that they were compiled with, and why; by name, `outer/inner`.

    `tools` has the full names of each server's tools.
    """
    missing: dict[str, str] = {}
    for member in star.members:
        if member.team:
            inner = missing_tools(member.team, tools)
            missing |= {f"{member.name}/{name}": reason for name, reason in inner.items()}
        elif reason := _missing(member, tools):
            missing[member.name] = reason
    return missing


def _bound(card: AgentCard, star: StarSpec, tools: Tools) -> AgentCard:
    """Return the card of a team, which no runtime of agents executes, in place of its card as a member."""
    bound = replace(card, kind="team", server=None, runtime="native", star=star)
    return with_members(bound, {member.name: _member_card(member, tools, card.approval) for member in star.members})


def _member_card(member: Member, tools: Tools, approval: MemberApproval) -> AgentCard:
    """Return the card of a member of a team, inside one with this `approval`."""
    offer = tools.get(member.server or "", {})
    found = tuple(offer[name] for name in member.tools if name in offer)
    card = AgentCard(
        name=member.name,
        kind="member",
        description=shortened(f"{member.persona.role}: {member.persona.goal}", _DESCRIPTION_CHARS),
        server=member.server,
        tools=found,
        role=member.role,
        degraded="" if found else _missing(member, tools),
        runtime=member.runtime,
        persona=member.persona,
        reflect=member.reflect,
        approval="effects" if approval == "effects" else member.approval,
    )
    return _bound(card, member.team, tools) if member.team else card


def _missing(member: Member, tools: Mapping[str, Collection[str]]) -> str:
    """Return what a member needs and isn't there; empty if it has everything."""
    if member.server is None:
        return ""
    if member.server not in tools:
        return f"Its server {member.server!r} was removed."
    if not member.tools:
        return f"It may call no tool of its server {member.server!r}."
    gone = [name for name in member.tools if name not in tools[member.server]]
    return f"Its tools {', '.join(gone)} aren't there." if gone else ""


def pinned_teams(manifest: Manifest, tenant: str) -> dict[str, str]:
    """Return the hash of the star of each of a tenant's teams, by name."""
    keys = ((key.rpartition("/"), pin) for key, pin in manifest.teams.items())
    return {name: pin for (owner, _, name), pin in keys if owner == tenant}


def with_team(manifest: Manifest, tenant: str, star: StarSpec) -> Manifest:
    """Return the manifest with a team of this star and no other."""
    teams = {**manifest.teams, f"{tenant}/{star.name}": star.hash}
    return manifest.model_copy(update={"teams": dict(sorted(teams.items()))})


def without_team(manifest: Manifest, tenant: str, name: str) -> Manifest:
    """Return the manifest without a team."""
    gone = f"{tenant}/{name}"
    return manifest.model_copy(update={"teams": {key: pin for key, pin in manifest.teams.items() if key != gone}})


async def broken_teams(stars: StarRepository, manifest: Manifest) -> Mapping[str, str]:
    """Return the teams of all tenants whose members would lack a server or tools, as `tenant/name`, each with why."""
    if not manifest.teams:
        return {}
    owners = {key: key.rpartition("/")[0] for key in manifest.teams}
    found = await stars.pinned({(owners[key], pin) for key, pin in manifest.teams.items()})
    offers = {
        tenant: {
            server: frozenset(f"{server}.{tool}" for tool in tools)
            for server, tools in offered(manifest, tenant).items()
        }
        for tenant in set(owners.values())
    }
    reasons = {
        key: " ".join(
            f"{name}: {reason}" for name, reason in missing_tools(found[owners[key], pin], offers[owners[key]]).items()
        )
        for key, pin in sorted(manifest.teams.items())
    }
    return {key: reason for key, reason in reasons.items() if reason}
