"""Rule: a person approves the calls of tools that can't be undone or repeated."""

from collections.abc import Iterable, Iterator

from architect.team_world import TeamWorld, granted_star, granted_tools
from starling.core.teams.spec import Finding, TeamMember, TeamSpec
from starling.core.teams.stars import StarSpec
from starling.core.tool_calls import Effect


def check(team: TeamSpec, world: TeamWorld) -> Iterator[Finding]:
    """Return the members that may call an unsafe tool, at any depth, without `approval: effects`.

    What the server's configuration demands stays demanded: a spec can only add to it.
    """
    for number, member in enumerate(team.members):
        tools = () if member.approval == "effects" else sorted(set(_unapproved(team, member, world)))
        parts = ((tool, *tool.partition(".")) for tool in tools)
        unsafe = [tool for tool, server, _, name in parts if world.servers.get(server, {}).get(name) is Effect.UNSAFE]
        if unsafe:
            reason = f"{member.name!r} may call {', '.join(unsafe)} without a person's approval."
            remedy = "Set `approval: effects`, or take the tools from it."
            yield Finding(f"members[{number}].approval", "unsafe_without_approval", reason, remedy)


def _unapproved(team: TeamSpec, member: TeamMember, world: TeamWorld) -> Iterable[str]:
    """Return the tools that a member may call where its own rule of approval decides."""
    if member.team:
        star = granted_star(team, member, world, (world.grant,))
        return _inner_unapproved(star) if star else ()
    return granted_tools(team, member, world, (world.grant,))


def _inner_unapproved(star: StarSpec) -> Iterator[str]:
    for member in star.members:
        if member.approval != "effects":
            yield from _inner_unapproved(member.team) if member.team else member.tools
