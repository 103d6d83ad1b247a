"""Rule: a team may not use more than a run of its caller."""

from collections.abc import Iterator

from architect.team_world import TeamWorld
from starling.core.teams.spec import Finding, TeamSpec

_UNITS = {"seconds": "seconds", "iterations": "decisions of a supervisor", "tokens": "tokens"}


def check(team: TeamSpec, world: TeamWorld) -> Iterator[Finding]:
    """Return the limits that are above those of the world."""
    for name, unit in _UNITS.items():
        wanted, most = getattr(team.limits, name), getattr(world.limits, name)
        if wanted is not None and most is not None and wanted > most:
            reason = f"The team may use {wanted:,.12g} {unit}, and a whole run {most:,.12g}."
            yield Finding(f"limits.{name}", "caller_limits", reason, f"Set at most {most:.12g}, or leave it out.")
