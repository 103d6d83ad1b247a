"""Rule: a member has one server, or one team, or neither; tools only with their server."""

from collections.abc import Iterator

from architect.team_world import TeamWorld
from starling.core.teams.spec import Finding, TeamSpec


def check(team: TeamSpec, _: TeamWorld) -> Iterator[Finding]:
    """Return the members with a server and a team, and those with tools that have no server to belong to."""
    for number, member in enumerate(team.members):
        path = f"members[{number}]"
        if member.server and member.team:
            reason = f"{member.name!r} has both a server and a team."
            yield Finding(f"{path}.team", "member_source", reason, "Make two members of it.")
        if member.team and member.tools:
            reason = f"{member.name!r} stands for a team, whose tools are those of its own members."
            yield Finding(f"{path}.tools", "member_source", reason, "Remove `tools`, or `team`.")
        elif member.tools and not member.server:
            server = member.tools[0].partition(".")[0]
            reason = f"{member.name!r} has tools but no server."
            yield Finding(f"{path}.server", "member_source", reason, f"Set `server: {server}`, or remove `tools`.")
