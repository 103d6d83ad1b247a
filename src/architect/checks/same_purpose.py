"""Rule: no two members have one purpose."""

from collections.abc import Collection, Iterator

from architect.team_world import TeamWorld, granted_tools
from architect.wording import plain_words
from starling.core.teams.spec import Finding, TeamMember, TeamSpec

_REMEDY = "Make one member of both, or give each what the other hasn't."


def check(team: TeamSpec, world: TeamWorld) -> Iterator[Finding]:
    """Return the members that stand for the team of an earlier one, or have its tools, or its role and goal.

    To have its tools means: of the tools of the one that has fewer, the other one has more than half.
    """
    tools = [frozenset(granted_tools(team, member, world, (world.grant,))) for member in team.members]
    for number, member in enumerate(team.members):
        for first, other in enumerate(team.members[:number]):
            if reason := _in_common(member, tools[number], other, tools[first]):
                text = f"{member.name!r} has the purpose of {other.name!r}: {reason}."
                yield Finding(f"members[{number}]", "same_purpose", text, _REMEDY)
                break


def _in_common(member: TeamMember, tools: Collection[str], other: TeamMember, others: Collection[str]) -> str:
    """Return what two members share that should be of one, empty if nothing."""
    if _words(member) == _words(other):
        return "role and goal are the same"
    if member.team and member.team == other.team:
        return f"both stand for the team {member.team!r}"
    shared = sorted({*tools} & {*others})
    same_source = (member.server, member.team) == (other.server, other.team)
    if same_source and 2 * len(shared) > min(len(tools), len(others)):
        return f"both have {', '.join(shared)}"
    return ""


def _words(member: TeamMember) -> tuple[list[str], list[str]]:
    return plain_words(member.role), plain_words(member.goal)
