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
        if is_reserved(member.team):
            continue
        state, activation = world.inactive.get(member.team), f"`starling team activate {member.team}`"
        if state is None:
            reason = f"You have no active team {member.team!r}."
            otherwise = "`starling team list` shows your teams; import and activate the inner team first."
            remedy = did_you_mean(member.team, sorted({*world.teams} - {team.name}), otherwise)
        elif state == "archived":
            reason = f"The team {member.team!r} is archived."
            remedy = f"{activation} takes it up again; or let the member use another one."
        else:
            reason = f"The team {member.team!r} is not active: its newest version is {state}."
            remedy = f"{activation} activates it."
        yield Finding(f"members[{number}].team", "unknown_team", reason, remedy)
