"""The cases that a team is tried on: its own examples, and those that a caller adds."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, count, islice
from typing import Final

from architect.checks import PROOF_RULES, caller_grant, checked, trivial_criterion, unknown_tool
from architect.checks.examples import named_tools
from architect.team_world import TeamWorld
from starling.core.teams.building import BuildCase
from starling.core.teams.findings import MOST_FINDINGS, Finding
from starling.core.teams.spec import Criterion, Example, TeamMember, TeamSpec

CASES: Final = "cases"
"""What paths of findings in the caller's cases begin with."""

_WRITER: Final = TeamMember(name="writer", role="Writer", goal="Write.")
_PART: Final = re.compile(r"^(criteria|examples)\[(\d+)\]")


def with_cases(team: TeamSpec, extra: Sequence[BuildCase]) -> TeamSpec:
    """Return a spec that has the caller's cases as further examples, to be checked and proved as one.

    They are named `case_1`, `case_2` and so on, as in a build; names of examples are left out. Their criteria are added
    too, under another id where theirs is taken.
    """
    criteria, examples = {one.id: one for one in team.criteria}, list(team.examples)
    taken = {example.id for example in examples}
    names = (name for name in map("case_{}".format, count(1)) if name not in taken)
    for case, name in zip(extra, names, strict=False):
        ids = [_added(criteria, one, name) for one in case.criteria]
        examples.append(
            Example(
                id=name,
                input=case.input,
                fixtures=case.fixtures,
                criteria=tuple(dict.fromkeys(ids)),
                must_call=case.must_call,
                must_not_call=case.must_not_call,
            )
        )
    if len(examples) == len(team.examples):
        return team
    return team.model_copy(update={"criteria": tuple(criteria.values()), "examples": tuple(examples)})


def case_findings(team: TeamSpec, extra: Sequence[BuildCase], world: TeamWorld) -> list[Finding]:
    """Return why a team's examples and the caller's cases can't prove it; empty if they can.

    Paths of the caller's cases begin with `cases`.
    """
    found = checked(with_cases(team, extra), world, PROOF_RULES)
    return [of_cases(finding, len(team.examples), len(team.criteria)) for finding in found]


def case_faults(cases: Sequence[BuildCase], world: TeamWorld) -> list[Finding]:
    """Return what is wrong with the caller's cases, whatever team is tried on them; empty if nothing is."""
    spec = with_cases(TeamSpec(name="team", purpose="Any.", members=(_WRITER,)), cases)
    found = chain(caller_grant.check(spec, world), _unknown_tools(spec, world), trivial_criterion.check(spec, world))
    return [of_cases(finding, 0, 0) for finding in islice(found, MOST_FINDINGS)]


def _unknown_tools(spec: TeamSpec, world: TeamWorld) -> Iterator[Finding]:
    for number, example in enumerate(spec.examples):
        for place, tool in named_tools(example):
            yield from unknown_tool.unknown(f"examples[{number}].{place}", tool, world)
    for number, criterion in enumerate(spec.criteria):
        if criterion.kind == "tool_called" and criterion.value is not None:
            yield from unknown_tool.unknown(f"criteria[{number}].value", criterion.value, world)


def of_cases(finding: Finding, examples: int, criteria: int) -> Finding:
    """Return a finding whose path begins with `cases` where it is in an example or a criterion after so many."""
    own = {"examples": examples, "criteria": criteria}

    def place(part: re.Match[str]) -> str:
        name, number = part[1], int(part[2])
        if number < own[name]:
            return part[0]
        return f"{CASES}{'.criteria' if name == 'criteria' else ''}[{number - own[name]}]"

    return replace(finding, path=_PART.sub(place, finding.path, count=1))


def _added(criteria: dict[str, Criterion], criterion: Criterion, case: str) -> str:
    """Add a criterion of a case to those of the team, and return the id that it has there."""
    if criteria.setdefault(criterion.id, criterion) == criterion:
        return criterion.id
    stem = f"{case}-{criterion.id}"[:40]
    free = (stem, *(f"{stem}-{number}" for number in range(2, len(criteria) + 3)))
    name = next(one for one in free if one not in criteria)
    criteria[name] = criterion.model_copy(update={"id": name})
    return name
