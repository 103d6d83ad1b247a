"""Rule: every member that works with tools is called in a case."""

from collections.abc import Iterator

from architect.team_world import TeamWorld, granted_tools
from starling.core.teams.spec import Finding, TeamSpec


def check(team: TeamSpec, world: TeamWorld) -> Iterator[Finding]:
    """Return the members none of whose tools is in `must_call` of an example, where the spec has examples."""
    called = {tool for example in team.examples for tool in example.must_call}
    for number, member in enumerate(team.members):
        tools = granted_tools(team, member, world, (world.grant,))
        if team.examples and tools and called.isdisjoint(tools):
            reason = f"No example must call a tool of {member.name!r}, so nothing shows that the team needs it."
            remedy = f"Add a tool such as {tools[0]!r} to `must_call` of an example, or remove the member."
            yield Finding(f"members[{number}]", "unused_member", reason, remedy)
