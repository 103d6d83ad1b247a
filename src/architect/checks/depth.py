"""Rule: teams are nested to a limited depth."""

from collections.abc import Iterator

from architect.team_world import TeamWorld
from starling.core.teams.spec import Finding, TeamSpec
from starling.core.teams.stars import DEEPEST


def check(team: TeamSpec, world: TeamWorld) -> Iterator[Finding]:
    """Return the members whose team has too many levels of teams inside it."""
    for number, member in enumerate(team.members):
        star = world.teams.get(member.team or "")
        if star and 1 + star.depth > DEEPEST:
            reason = f"With the team {member.team!r}, {1 + star.depth} teams are inside one another; {DEEPEST} may be."
            remedy = f"Take a team with fewer levels, or the members of {member.team!r} themselves."
            yield Finding(f"members[{number}].team", "depth", reason, remedy)
