"""Rule: a member that needs tools gets at least one."""

from collections.abc import Iterator

from architect.team_world import TeamWorld, members_without_tools
from starling.core.teams.spec import Finding, TeamSpec


def check(team: TeamSpec, world: TeamWorld) -> Iterator[Finding]:
    """Return the members that the spec's and the caller's grants leave no tool for."""
    reached = {
        number for number, member in enumerate(team.members) if not member.server or world.reaches(member.server)
    }
    for finding in members_without_tools(team, world, [world.grant]):
        if any(finding.path.startswith(f"members[{number}].") for number in reached):
            yield finding
