"""Rule: no other agent has the team's name, or one that a model can't tell from it."""

from collections.abc import Iterator

from architect.team_world import TeamWorld
from starling.core.agents import RESERVED
from starling.core.model_output.names import plain_name
from starling.core.teams.spec import Finding, TeamSpec


def check(team: TeamSpec, world: TeamWorld) -> Iterator[Finding]:
    """Return the agents and other teams with this name, or with one that differs only in case and separators."""
    if team.name in world.agents:
        reason = f"The name {team.name!r} belongs to one of your agents."
        yield Finding("name", "taken_name", reason, "Choose another name.")
        return
    others = sorted({*world.agents, *world.teams, *world.builtins, *RESERVED} - {team.name})
    if alike := [other for other in others if plain_name(other) == plain_name(team.name)]:
        reason = f"The name {team.name!r} differs from {alike[0]!r} only in separators, so models confuse them."
        yield Finding("name", "taken_name", reason, "Choose another name.")
