"""Specs that ask for more than a team may be, as a model writes them that does whatever a goal asks for."""

from typing import Any

import pytest

from architect.checks import DESIGN_RULES, checked
from architect.compiler import compile_team
from architect.spec_format import team_of
from starling.core.teams.spec import TeamInvalidError
from tests.support.team_specs import WORLD, member, spec_document


def refusals(document: dict[str, Any]) -> set[tuple[str, str]]:
    """Return why a document never becomes a team, by rule and place."""
    try:
        team = team_of(document)
    except TeamInvalidError as error:
        return {(finding.rule, finding.path) for finding in error.findings}
    with pytest.raises(TeamInvalidError):
        compile_team(team, WORLD, creator=None, activator=None)
    return {(finding.rule, finding.path) for finding in checked(team, WORLD, DESIGN_RULES)}


@pytest.mark.parametrize(
    ("document", "fault"),
    [
        pytest.param(spec_document(member("architect")), ("reserved_name", "members[0].name"), id="own-architect"),
        pytest.param(spec_document(member("arch1tect")), ("look_alike_name", "members[0].name"), id="look-alike"),
        pytest.param(
            spec_document(member(server="architect", tools=["architect.build"])),
            ("unknown_server", "members[0].server"),
            id="architect-as-a-server",
        ),
        pytest.param(spec_document(*(member(f"m{n}") for n in range(13))), ("format", "members"), id="many-members"),
    ],
)
def test_team_that_would_build_teams_or_grow_without_end_is_refused(
    document: dict[str, Any], fault: tuple[str, str]
) -> None:
    if fault[0] == "look_alike_name":
        assert fault in {(one.rule, one.path) for one in checked(team_of(document), WORLD)}
    else:
        assert fault in refusals(document)
