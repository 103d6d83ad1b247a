"""Rule: a member has one server, or one team, or neither; tools only of their server."""

from collections.abc import Iterator

from architect.team_world import TeamWorld
from starling.core.teams.spec import Finding, TeamSpec


def check(team: TeamSpec, _: TeamWorld) -> Iterator[Finding]:
    """Return the members with a server and a team, and the tools that don't belong to the server of their member."""
    for number, member in enumerate(team.members):
        path = f"members[{number}]"
        if member.server and member.team:
            reason = f"{member.name!r} has both a server and a team."
            yield Finding(f"{path}.team", "member_source", reason, "Make two members of it.")
        if member.team and member.tools:
            reason = f"{member.name!r} stands for a team, whose tools are those of its own members."
            yield Finding(f"{path}.tools", "member_source", reason, "Remove `tools`, or `team`.")
            continue
        own = member.server or next((tool.partition(".")[0] for tool in member.tools), None)
        if own != member.server:
            reason = f"{member.name!r} has tools but no server."
            yield Finding(f"{path}.server", "member_source", reason, f"Set `server: {own}`, or remove `tools`.")
        for index, tool in enumerate(member.tools):
            if (other := tool.partition(".")[0]) != own:
                reason = f"{tool!r} is a tool of {other!r}, and {member.name!r} uses {own!r}: a member has one server."
                remedy = f"Give the tools of {other!r} to another member."
                yield Finding(f"{path}.tools[{index}]", "member_source", reason, remedy)
