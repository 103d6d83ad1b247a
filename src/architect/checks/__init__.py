"""Checks of a team spec: one rule a module, each a function of the spec and of the world that it is for."""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final

from architect.checks import (
    broken_team,
    caller_grant,
    criteria,
    cycle,
    depth,
    duplicate_member,
    examples,
    member_source,
    member_without_tools,
    reserved_name,
    spec_grants,
    taken_name,
    too_many_members,
    two_servers,
    unknown_server,
    unknown_team,
    unknown_tool,
)
from architect.team_world import TeamWorld
from starling.core.teams import MOST_FINDINGS, Finding, TeamSpec

type Rule = Callable[[TeamSpec, TeamWorld], Iterable[Finding]]
"""Returns what is wrong. It reads only its arguments and never raises."""

STRUCTURE: Final[Sequence[Rule]] = (
    reserved_name.check,
    taken_name.check,
    duplicate_member.check,
    too_many_members.check,
    member_source.check,
    two_servers.check,
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

RULES: Final[Sequence[Rule]] = (*STRUCTURE, caller_grant.check, member_without_tools.check)


def checked(team: TeamSpec, world: TeamWorld, rules: Sequence[Rule] = RULES) -> list[Finding]:
    """Return what is wrong with a team for the caller of this world, in the order of the rules; empty if nothing is.

    Of more than `MOST_FINDINGS` the first ones are returned.
    """
    return list(islice((finding for rule in rules for finding in rule(team, world)), MOST_FINDINGS))
