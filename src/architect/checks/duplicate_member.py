"""Rule: each member has a name of its own."""

from collections.abc import Iterator

from architect.team_world import TeamWorld
from starling.core.model_output.names import plain_name
from starling.core.teams.spec import Finding, TeamSpec


def check(team: TeamSpec, _: TeamWorld) -> Iterator[Finding]:
    """Return the members whose name an earlier one has, but for separators."""
    seen: dict[str, int] = {}
    for number, member in enumerate(team.members):
        first = seen.setdefault(plain_name(member.name), number)
        if first != number:
            reason = f"The name {member.name!r} can't be told from that of members[{first}]."
            yield Finding(f"members[{number}].name", "duplicate_member", reason, "Give each member its own name.")
