"""Checks of a team spec: one rule a module, each a function of the spec and of the world that it is for."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from architect.checks import (
    broken_team,
    caller_grant,
    caller_limits,
    criteria,
    cycle,
    depth,
    duplicate_member,
    examples,
    few_cases,
    look_alike_name,
    member_source,
    member_without_tools,
    reserved_name,
    same_purpose,
    spec_grants,
    taken_name,
    too_many_members,
    trivial_criterion,
    unjudged_criterion,
    unknown_server,
    unknown_team,
    unknown_tool,
    unsafe_without_approval,
)
from architect.team_world import TeamWorld, is_reserved
from starling.core.agents import AgentName
from starling.core.teams.spec import MOST_FINDINGS, Finding, TeamMember, TeamSpec

NAME_CHARS: Final = 48  # of a team
_MOST_ALIKE: Final = 100  # names that are tried

type Rule = Callable[[TeamSpec, TeamWorld], Iterable[Finding]]
"""Returns what is wrong. It reads only its arguments and never raises."""

STRUCTURE: Final[Sequence[Rule]] = (
    reserved_name.check,
    taken_name.check,
    duplicate_member.check,
    too_many_members.check,
    member_source.check,
    unknown_server.check,
    unknown_tool.check,
    unknown_team.check,
    broken_team.check,
    cycle.check,
    depth.check,
    spec_grants.check,
    criteria.check,
    examples.check,
)
"""What has to hold whoever asks."""

RULES: Final[Sequence[Rule]] = (
    *STRUCTURE,
    caller_grant.check,
    member_without_tools.check,
    look_alike_name.check,
)
"""What has to hold of a spec that someone imports."""

CASES: Final[Sequence[Rule]] = (unjudged_criterion.check, trivial_criterion.check)
"""What the cases of a team have to show."""

PROOF_RULES: Final[Sequence[Rule]] = (criteria.check, examples.check, few_cases.check, *CASES)
"""What has to hold of the cases that a team is proved on, with those that are added for the proof."""

WITHOUT_EXAMPLES: Final[Sequence[Rule]] = (
    *RULES,
    same_purpose.check,
    unsafe_without_approval.check,
    caller_limits.check,
    *CASES,
)
"""What has to hold of a spec that a build designs without examples of its own."""

DESIGN_RULES: Final[Sequence[Rule]] = (*WITHOUT_EXAMPLES, few_cases.check)
"""What has to hold of a spec that a build designs."""


NOTES: Final[Sequence[Rule]] = (caller_limits.check,)
"""What is worth knowing of a spec that may be imported all the same."""

NAME: Final[Sequence[Rule]] = (reserved_name.check, taken_name.check, look_alike_name.check)
"""What depends on the team's name alone, in a team of any members."""


def name_findings(name: AgentName, world: TeamWorld) -> list[Finding]:
    """Return why no team of the caller may have this name; empty if one may."""
    member = TeamMember(name="member", role="member", goal="Any.")
    return checked(TeamSpec(name=name, purpose="Any.", members=(member,)), world, NAME)


def free_name(name: str, world: TeamWorld) -> str | None:
    """Return a name that no agent or team has or looks like, with a number if needed; None if no number helps."""
    others = replace(world, agents={*world.agents, *world.teams})
    suffixes = ("", *(f"_{number}" for number in range(2, _MOST_ALIKE)))
    names = (f"{name[: NAME_CHARS - len(suffix)]}{suffix}" for suffix in suffixes)
    return next((one for one in names if not (is_reserved(one) or name_findings(one, others))), None)


def checked(team: TeamSpec, world: TeamWorld, rules: Sequence[Rule] = RULES) -> list[Finding]:
    """Return what is wrong with a team for the caller of this world, in the order of the rules; empty if nothing is.

    Of more than `MOST_FINDINGS` the first ones are returned.
    """
    return list(islice((finding for rule in rules for finding in rule(team, world)), MOST_FINDINGS))
