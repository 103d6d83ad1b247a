"""The tools that the members of a team get: what the spec asks for, limited by every grant."""

from collections.abc import Collection, Iterator, Sequence

from architect.team_world import TeamWorld, nested, permits
from starling.core.principal import Grant
from starling.core.teams.findings import Finding
from starling.core.teams.spec import TeamMember, TeamSpec
from starling.core.teams.stars import StarSpec

type Grants = Sequence[Grant | None]
"""Grants that all have to permit a call. None permits every call."""


def wanted_tools(team: TeamSpec, member: TeamMember, world: TeamWorld) -> list[str]:
    """Return the full names, sorted, of those tools that a member asks for, exist and are granted by the spec.

    They are the ones that it names, else those of its server, else those of its team.
    """
    grant = team.grants.grant
    if member.team:
        star = world.teams.get(member.team)
        return sorted(tool for tool in (star.tools if star else ()) if permits(grant, tool))
    named = set(member.tools) or world.tools(member.server or "")
    return sorted(tool for tool in named if world.has(tool) and permits(grant, tool))


def lacks(team: TeamSpec, tools: Collection[str], tool: str, world: TeamWorld) -> bool:
    """Return whether a tool isn't among those of the members, though the caller may know of it.

    False for a tool of a member's server that doesn't exist, and where a member's team isn't active: that is the fault.
    """
    server = tool.partition(".")[0]
    gone = server not in world.servers and any(member.server == server for member in team.members)
    inactive = any(member.team and member.team not in world.teams for member in team.members)
    return tool not in tools and world.permits(tool) and not (gone or inactive)


def granted_tools(team: TeamSpec, member: TeamMember, world: TeamWorld, grants: Grants) -> tuple[str, ...]:
    """Return those of the wanted tools that every grant permits."""
    wanted = wanted_tools(team, member, world)
    return tuple(tool for tool in wanted if all(permits(grant, tool) for grant in grants))


def granted_star(team: TeamSpec, member: TeamMember, world: TeamWorld, grants: Grants) -> StarSpec | None:
    """Return the star of a member's team with those tools that the spec and every grant permit; None without a team."""
    star = world.teams.get(member.team) if member.team else None
    for grant in (team.grants.grant, *grants):
        star = star and star.limited(grant)
    return star


def members_without_tools(team: TeamSpec, world: TeamWorld, grants: Grants) -> Iterator[Finding]:
    """Return a finding for each member that no tool of its server is left for, or that stands for such a team.

    Servers, tools and teams that don't exist are left to their own rules, as far as the caller may know of them.
    """
    for number, member in enumerate(team.members):
        path = f"members[{number}]"
        if member.team:
            yield from _inner_without_tools(f"{path}.team", team, member, world, grants)
        elif _exists(member, world) and not granted_tools(team, member, world, grants):
            yield _without_tools(path, team, member, world, grants)


def _exists(member: TeamMember, world: TeamWorld) -> bool:
    """Return whether a member has a server, and some tool of those that it names and the caller may know of, if any."""
    if member.server is None or (member.server not in world.servers and world.reaches(member.server)):
        return False
    known = [tool for tool in member.tools if world.permits(tool)]
    return not known or any(map(world.has, known))


def _without_tools(path: str, team: TeamSpec, member: TeamMember, world: TeamWorld, grants: Grants) -> Finding:
    server = member.server or ""
    reason = f"{member.name!r} would have no tool: "
    if any(grant is not None and not grant.reaches(server) for grant in grants):
        reason += f"those who make and activate the team may not call {server!r}."
        remedy = "Use keys that are granted it, or another server."
    elif not world.tools(server):
        reason += f"the server {server!r} has none now."
        remedy = f"`starling server show {server}` says why."
    elif not wanted_tools(team, member, world) and not _asks_for_more(team, member, world):
        reason += f"`grants` includes none of {server!r} that it asks for."
        remedy = f"Add {server!r} to `grants.servers`, or its tools to `grants.tools`."
    else:
        reason += f"those who make and activate the team may call none of {server!r} that it asks for."
        remedy = "Name tools that they may call, or use keys that are granted more."
    return Finding(f"{path}.server", "member_without_tools", reason, remedy)


def _asks_for_more(team: TeamSpec, member: TeamMember, world: TeamWorld) -> bool:
    """Return whether tools are named for a member that the caller may not call, whether or not they exist."""
    own = (tool for tool in team.grants.tools if tool.startswith(f"{member.server}."))
    return not all(map(world.permits, member.tools or own))


def _inner_without_tools(
    path: str, team: TeamSpec, member: TeamMember, world: TeamWorld, grants: Grants
) -> Iterator[Finding]:
    before, after = world.teams.get(member.team or ""), granted_star(team, member, world, grants)
    if before is None or after is None:
        return
    pairs = zip((before, *nested(before)), (after, *nested(after)), strict=True)
    lost = [
        f"{whole.name}.{one.name}"
        for whole, part in pairs
        for one, left in zip(whole.members, part.members, strict=True)
        if one.tools and not left.tools
    ]
    if lost:
        reason = f"These members of the team {member.team!r} would have no tool: {', '.join(lost)}."
        remedy = "Extend `grants` of this spec, or use keys that are granted what that team calls."
        yield Finding(path, "member_without_tools", reason, remedy)
