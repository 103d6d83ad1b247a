"""Rule: the teams that members stand for are active teams of the tenant."""

from collections.abc import Iterator

from architect.team_world import TeamWorld, is_reserved
from architect.wording import did_you_mean
from starling.core.teams.spec import Finding, TeamSpec


def check(team: TeamSpec, world: TeamWorld) -> Iterator[Finding]:
    """Return the teams that don't exist or aren't active.

    A team inside itself is a cycle, and a name of the platform is reserved: they are not reported here.
    """
    for number, member in enumerate(team.members):
        if member.team is None or member.team == team.name or member.team in world.teams:
            continue
        if not is_reserved(member.team):
            reason, remedy = _fault(member.team, team, world)
            yield Finding(f"members[{number}].team", "unknown_team", reason, remedy)


def _fault(inner: str, team: TeamSpec, world: TeamWorld) -> tuple[str, str]:
    """Return why a team can't be a member, and what to do."""
    state, activation = world.inactive.get(inner), f"`starling team activate {inner}`"
    if state == "archived":
        return f"The team {inner!r} is archived.", f"{activation} takes it up again; or let the member use another one."
    if state is not None:
        return f"The team {inner!r} is not active: its newest version is {state}.", f"{activation} activates it."
    otherwise = "`starling team list` shows your teams; import and activate the inner team first."
    remedy = did_you_mean(inner, sorted({*world.teams} - {team.name}), otherwise)
    return f"You have no active team {inner!r}.", remedy
