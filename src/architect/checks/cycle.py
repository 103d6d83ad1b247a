"""Rule: no team is inside itself."""

from collections.abc import Iterator

from architect.team_world import TeamWorld, nested
from starling.core.teams.spec import Finding, TeamSpec


def check(team: TeamSpec, world: TeamWorld) -> Iterator[Finding]:
    """Return the members that stand for this team, or for one that has this team inside it."""
    for number, member in enumerate(team.members):
        path = f"members[{number}].team"
        star = world.teams.get(member.team or "")
        if member.team == team.name:
            yield Finding(path, "cycle", "A team can't be a member of itself.", "Name another team.")
        elif star and team.name in {inner.name for inner in nested(star)}:
            reason = f"The team {member.team!r} has the team {team.name!r} inside it."
            yield Finding(path, "cycle", reason, "Name a team that doesn't use this one.")
