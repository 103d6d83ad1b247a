"""Rule: a person approves the calls of tools that can't be undone or repeated."""

from collections.abc import Iterator

from architect.team_world import TeamWorld, granted_star, granted_tools
from starling.core.teams.spec import Finding, TeamSpec
from starling.core.teams.stars import StarSpec
from starling.core.tool_calls import Effect


def check(team: TeamSpec, world: TeamWorld) -> Iterator[Finding]:
    """Return the members that may call an unsafe tool, at any depth, without `approval: effects`.

    What the server's configuration demands stays demanded: a spec can only add to it.
    """
    for number, member in enumerate(team.members):
        if member.approval == "effects":
            continue
        star = granted_star(team, member, world, (world.grant,))
        tools = _inner_unapproved(star) if star else granted_tools(team, member, world, (world.grant,))
        parts = ((tool, *tool.partition(".")) for tool in sorted(set(tools)))
        unsafe = [tool for tool, server, _, name in parts if world.servers.get(server, {}).get(name) is Effect.UNSAFE]
        if unsafe:
            reason = f"{member.name!r} may call {', '.join(unsafe)} without a person's approval."
            remedy = "Set `approval: effects`, or take the tools from it."
            yield Finding(f"members[{number}].approval", "unsafe_without_approval", reason, remedy)


def _inner_unapproved(star: StarSpec) -> Iterator[str]:
    for member in star.members:
        if member.approval != "effects":
            yield from _inner_unapproved(member.team) if member.team else member.tools
