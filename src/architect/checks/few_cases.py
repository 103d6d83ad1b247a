"""Rule: a team is tried on at least two cases."""

from collections.abc import Iterator
from typing import Final

from architect.team_world import TeamWorld
from starling.core.teams import Finding, TeamSpec

FEWEST: Final = 2


def check(team: TeamSpec, _: TeamWorld) -> Iterator[Finding]:
    """Return a finding where the spec has less than two examples."""
    if (count := len(team.examples)) < FEWEST:
        reason = f"The team has {count} example{'' if count == 1 else 's'}, and is tried on at least {FEWEST}."
        yield Finding("examples", "few_cases", reason, "Add examples: other requests that it has to serve.")
