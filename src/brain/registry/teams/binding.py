"""The card of a team, made from its star and the tools that the epoch pins."""

from collections.abc import Collection, Mapping

from brain.registry.card_text import shortened
from brain.registry.cards import AgentCard, with_members
from starling.core.teams.stars import Member, MemberApproval, StarSpec
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
    bound = AgentCard(
        name=card.name,
        kind="team",
        description=card.description,
        role=card.role,
        persona=card.persona,
        star=star,
        reflect=card.reflect,
        approval=card.approval,
    )
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
