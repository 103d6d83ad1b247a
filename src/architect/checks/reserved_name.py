"""Rule: no name of a part that every star has."""

from collections.abc import Iterator

from architect.team_world import TeamWorld, is_reserved
from starling.core.teams.spec import Finding, TeamSpec


def check(team: TeamSpec, world: TeamWorld) -> Iterator[Finding]:
    """Return the names of the team, of its members and of their teams that belong to the platform."""
    if is_reserved(team.name) or team.name in world.builtins:
        yield _finding("name", team.name)
    for number, member in enumerate(team.members):
        if is_reserved(member.name):
            yield _finding(f"members[{number}].name", member.name)
        if member.team is not None and is_reserved(member.team) and member.team not in world.teams:
            reason = f"{member.team!r} is a part of the platform, and no member can stand for it."
            yield Finding(f"members[{number}].team", "reserved_name", reason, "Name one of your teams.")


def _finding(path: str, name: str) -> Finding:
    return Finding(path, "reserved_name", f"The name {name!r} belongs to the platform.", "Choose another name.")
