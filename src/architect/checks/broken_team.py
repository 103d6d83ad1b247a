"""Rule: the teams that members stand for can work."""

from collections.abc import Iterator

from architect.team_world import TeamWorld
from starling.core.teams.spec import Finding, TeamSpec


def check(team: TeamSpec, world: TeamWorld) -> Iterator[Finding]:
    """Return the inner teams with tools that no longer exist."""
    for number, member in enumerate(team.members):
        star = world.teams.get(member.team or "")
        missing = [tool for tool in (star.tools if star else ()) if not world.has(tool)]
        if shown := [tool for tool in missing if world.permits(tool)]:
            reason = f"The team {member.team!r} needs tools that no longer exist: {', '.join(shown)}."
            remedy = f"Activate a version of {member.team!r} without them, or add the server again."
            yield Finding(f"members[{number}].team", "broken_team", reason, remedy)
