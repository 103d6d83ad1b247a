"""Rule: no name of a part that every star has."""

from collections.abc import Iterator

from architect.team_world import TeamWorld, is_reserved
from starling.core.teams import Finding, TeamSpec


def check(team: TeamSpec, world: TeamWorld) -> Iterator[Finding]:
    """Return the names of the team and of its members that belong to the platform."""
    if is_reserved(team.name) or team.name in world.builtins:
        yield _finding("name", team.name)
    for number, member in enumerate(team.members):
        if is_reserved(member.name):
            yield _finding(f"members[{number}].name", member.name)


def _finding(path: str, name: str) -> Finding:
    return Finding(path, "reserved_name", f"The name {name!r} belongs to the platform.", "Choose another name.")
