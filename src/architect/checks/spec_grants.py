"""Rule: the spec's own grants cover what its members name."""

from collections.abc import Iterator

from architect.team_world import TeamWorld, permits
from starling.core.teams.spec import Finding, TeamSpec


def check(team: TeamSpec, _: TeamWorld) -> Iterator[Finding]:
    """Return the tools of members that `grants` leaves out. Empty grants leave out nothing."""
    for number, member in enumerate(team.members):
        for index, tool in enumerate(member.tools):
            if not permits(team.grants.grant, tool):
                reason = f"{member.name!r} names {tool!r}, and `grants` doesn't include it."
                remedy = f"Add {tool!r} to `grants.tools`, or remove it here."
                yield Finding(f"members[{number}].tools[{index}]", "spec_grants", reason, remedy)
