"""What a team can be made of, as pure data, and which tools its members get within every grant."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from starling.core.agents import RESERVED, like_a_specialist
from starling.core.principal import Grant
from starling.core.teams.spec import Finding, TeamMember, TeamSpec
from starling.core.teams.stars import StarLimits, StarSpec
from starling.core.tool_calls import Effect

NO_LIMITS: Final = StarLimits()


@dataclass(frozen=True, slots=True)
class TeamWorld:
    """The registry as one caller of one tenant sees it.

    `servers` has the effect of each tool by the server's and the tool's own name (`servers["git"]["git_log"]`): the
    servers of the active epoch that the tenant sees. `teams` has the stars of the tenant's active teams, `inactive` the
    state of each other one's newest version. `agents` has the names of its custom agents, `archived_agents` those of
    archived ones, `builtins` those of built-in agents. `grant` is what the caller may call (None: everything); findings
    name nothing beyond it. `limits` are those of the caller's runs.
    """

    servers: Mapping[str, Mapping[str, Effect]]
    teams: Mapping[str, StarSpec] = field(default_factory=dict[str, StarSpec])
    agents: Collection[str] = ()
    builtins: Collection[str] = ()
    grant: Grant | None = None
    limits: StarLimits = NO_LIMITS
    inactive: Mapping[str, str] = field(default_factory=dict[str, str])
    archived_agents: Collection[str] = ()

    def tools(self, server: str) -> list[str]:
        """Return the full names of a server's tools, sorted; none for an unknown server."""
        return sorted(f"{server}.{tool}" for tool in self.servers.get(server, ()))

    def has(self, tool: str) -> bool:
        """Return whether there is a tool of this full name."""
        server, _, name = tool.partition(".")
        return name in self.servers.get(server, ())

    def reaches(self, server: str) -> bool:
        """Return whether the caller may call a tool of a server, whether or not it exists."""
        return self.grant is None or self.grant.reaches(server)

    def permits(self, tool: str) -> bool:
        """Return whether the caller may call a tool, whether or not it exists."""
        return permits(self.grant, tool)

    def visible_servers(self) -> list[str]:
        """Return the servers that a finding may name to the caller."""
        return sorted(filter(self.reaches, self.servers))

    def visible_tools(self, server: str) -> list[str]:
        """Return the full names of a server's tools that a finding may name to the caller."""
        return list(filter(self.permits, self.tools(server)))


def permits(grant: Grant | None, tool: str) -> bool:
    """Return whether a tool, given by its full name, may be called. Without a grant, everything may."""
    return grant is None or grant.permits(tool.partition(".")[0], tool)


def is_reserved(name: str) -> bool:
    """Return whether a name belongs to a part of every star, or to the specialists."""
    return name in RESERVED or like_a_specialist(name)


def nested(star: StarSpec) -> Iterator[StarSpec]:
    """Return the stars inside a star, at any depth."""
    for member in star.members:
        if member.team:
            yield member.team
            yield from nested(member.team)


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
            continue
        known = [tool for tool in member.tools if world.permits(tool)]
        is_there = member.server and (member.server in world.servers or not world.reaches(member.server))
        exists = is_there and (not known or any(map(world.has, known)))
        if exists and not granted_tools(team, member, world, grants):
            reason = f"{member.name!r} would have no tool of {member.server!r}."
            remedy = (
                "Let `grants`, and the keys of those who make and activate the team, permit one that it asks for; "
                f"`starling server show {member.server}` lists them."
            )
            yield Finding(f"{path}.server", "member_without_tools", reason, remedy)


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
