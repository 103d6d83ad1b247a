"""Rule: no more members than the spec's own limit."""

from collections.abc import Iterator

from architect.team_world import TeamWorld
from starling.core.teams.spec import Finding, TeamSpec


def check(team: TeamSpec, _: TeamWorld) -> Iterator[Finding]:
    """Return a finding where `limits.members` is smaller than the number of members."""
    count, limit = len(team.members), team.limits.members
    if count > limit:
        reason = f"The team has {count} members, and `limits.members` allows {limit}."
        yield Finding("members", "too_many_members", reason, "Remove members, or raise `limits.members` (at most 12).")
