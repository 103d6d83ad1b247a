"""Rule: a member uses one server."""

from collections.abc import Iterator

from architect.team_world import TeamWorld
from starling.core.teams.spec import Finding, TeamSpec


def check(team: TeamSpec, _: TeamWorld) -> Iterator[Finding]:
    """Return the tools that belong to another server than their member's."""
    for number, member in enumerate(team.members):
        own = member.server or next((tool.partition(".")[0] for tool in member.tools), None)
        for index, tool in enumerate(member.tools):
            other = tool.partition(".")[0]
            if not member.team and other != own:
                reason = f"{tool!r} is a tool of {other!r}, and {member.name!r} uses {own!r}: a member has one server."
                remedy = f"Give the tools of {other!r} to another member."
                yield Finding(f"members[{number}].tools[{index}]", "two_servers", reason, remedy)
