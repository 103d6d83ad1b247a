"""The cases that a team is tried on: its own examples, and those that a caller adds."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from architect.checks import PROOF_RULES, checked
from architect.team_world import TeamWorld
from starling.core.teams.building import BuildCase
from starling.core.teams.spec import Criterion, Example, Finding, TeamSpec

_PART: Final = re.compile(r"(criteria|examples)\[(\d+)\]")


def with_cases(team: TeamSpec, extra: Sequence[BuildCase]) -> TeamSpec:
    """Return a spec that has the caller's cases as further examples, to be checked and proved as one.

    They are named `own1`, `own2` and so on. Their criteria are added too, under another id where theirs is taken.
    """
    criteria, examples = {one.id: one for one in team.criteria}, list(team.examples)
    for number, case in enumerate(extra, start=1):
        name = _free(f"own{number}", [example.id for example in examples])
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
    known = {"criteria": len(team.criteria), "examples": len(team.examples)}

    def place(part: re.Match[str]) -> str:
        name, number = part[1], int(part[2])
        if number < known[name]:
            return part[0]
        return f"cases{'.criteria' if name == 'criteria' else ''}[{number - known[name]}]"

    found = checked(with_cases(team, extra), world, PROOF_RULES)
    return [replace(finding, path=_PART.sub(place, finding.path, count=1)) for finding in found]


def _added(criteria: dict[str, Criterion], criterion: Criterion, case: str) -> str:
    """Add a criterion of a case to those of the team, and return the id that it has there."""
    if criteria.setdefault(criterion.id, criterion) == criterion:
        return criterion.id
    name = _free(f"{case}-{criterion.id}"[:40], criteria)
    criteria[name] = criterion.model_copy(update={"id": name})
    return name


def _free(name: str, taken: Sequence[str] | dict[str, Criterion]) -> str:
    """Return the name, with a number if it is taken."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    return free
