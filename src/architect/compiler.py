"""From a team spec to a star spec: the same spec, world and grants give the same star."""

from architect.checks import STRUCTURE, checked
from architect.team_world import TeamWorld, granted_star, granted_tools, members_without_tools
from starling.core.agents import Persona
from starling.core.llm import ModelRole
from starling.core.principal import Grant
from starling.core.teams.spec import TeamInvalidError, TeamSpec
from starling.core.teams.stars import Member, StarLimits, StarSpec


def compile_team(team: TeamSpec, world: TeamWorld, *, creator: Grant | None, activator: Grant | None) -> StarSpec:
    """Return the star of a team, with the tools that the spec, its creator and its activator all grant.

    Teams inside it are those that are active now, limited in the same way. Raises TeamInvalidError.
    """
    grants = (creator, activator)
    if findings := checked(team, world, STRUCTURE) + list(members_without_tools(team, world, grants)):
        raise TeamInvalidError(findings)
    limits = StarLimits(seconds=team.limits.seconds, iterations=team.limits.iterations, tokens=team.limits.tokens)
    return StarSpec(
        name=team.name,
        purpose=team.purpose,
        instructions=team.instructions or "",
        members=tuple(
            Member(
                name=member.name,
                persona=Persona(role=member.role, goal=member.goal, backstory=member.backstory),
                server=member.server,
                tools=() if member.team else granted_tools(team, member, world, grants),
                team=granted_star(team, member, world, grants),
                runtime=member.runtime,
                role=ModelRole(member.model_role),
                reflect=member.reflect,
                approval=member.approval,
            )
            for member in team.members
        ),
        limits=limits,
    )
