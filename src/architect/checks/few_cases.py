"""Rule: a team is tried on at least two cases."""

from collections.abc import Iterator
from typing import Final

from architect.team_world import TeamWorld
from architect.wording import folded
from starling.core.teams.spec import Finding, TeamSpec

FEWEST: Final = 2


def check(team: TeamSpec, _: TeamWorld) -> Iterator[Finding]:
    """Return a finding where the spec has less than two examples, those with one request counted once."""
    if (count := len({folded(example.input) for example in team.examples})) < FEWEST:
        requests = f"{count} different request{'' if count == 1 else 's'}"
        reason = f"The examples have {requests}, and a team is tried on at least {FEWEST}."
        yield Finding("examples", "few_cases", reason, "Add examples: other requests that it has to serve.")
