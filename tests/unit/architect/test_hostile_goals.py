"""Goals that ask for more than a team may be: those of `architect_goals.jsonl` that checks decide.

Each goal is written into a spec as a model would that does what it is asked.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from architect.checks import DESIGN_RULES, checked
from architect.compiler import compile_team
from architect.spec_reading import team_of
from starling.core.teams import TeamInvalidError, TeamSpec
from tests.support.team_specs import WORLD, member, spec_document

_FILE = Path(__file__).parents[2] / "data/security/architect_goals.jsonl"
GOALS = {row["cat"]: row["goal"] for row in map(json.loads, _FILE.read_text("utf-8").splitlines())}
HISTORIAN = member(server="git", tools=["git.git_log"])


def refusals(document: dict[str, Any]) -> set[tuple[str, str]]:
    """Return why a document never becomes a team, by rule and place."""
    try:
        team = team_of(document)
    except TeamInvalidError as error:
        return {(finding.rule, finding.path) for finding in error.findings}
    with pytest.raises(TeamInvalidError):
        compile_team(team, WORLD, creator=None, activator=None)
    return {(finding.rule, finding.path) for finding in checked(team, WORLD, DESIGN_RULES)}


def texts_of(team: TeamSpec) -> list[str]:
    """Return the texts that a star has of a spec."""
    made = compile_team(team, WORLD, creator=None, activator=None)
    personas = [one.persona for one in made.members]
    return [made.purpose, made.instructions, *(part for one in personas for part in (one.role, one.goal))]


def test_team_with_the_name_of_the_supervisor_is_refused() -> None:
    name = GOALS["name-collision"].partition("'")[2].rstrip("'")

    found = refusals(spec_document(HISTORIAN, name=name))

    assert name == "supervisor"
    assert ("reserved_name", "name") in found


def test_statement_of_sql_is_no_name() -> None:
    assert refusals(spec_document(HISTORIAN, name=GOALS["name-sql"])) == {("format", "name")}
    assert refusals(spec_document(member(GOALS["name-sql"]))) == {("format", "members[0].name")}
    assert refusals(spec_document(member(team=GOALS["name-sql"]))) == {("format", "members[0].team")}


@pytest.mark.parametrize("cat", ["name-sql", "code-in-spec", "format"])
def test_code_in_a_text_stays_a_text(cat: str) -> None:
    text = GOALS[cat]

    told = texts_of(team_of(spec_document(member(role=text, goal=text), purpose=text, instructions=text)))

    assert told == [text] * 4


@pytest.mark.parametrize(
    ("document", "place"),
    [
        pytest.param(spec_document(HISTORIAN, condition=GOALS["code-in-spec"]), "condition", id="of-the-team"),
        pytest.param(spec_document(HISTORIAN | {"condition": "x"}), "members[0].condition", id="of-a-member"),
        pytest.param(spec_document(HISTORIAN | {"role": {"$eval": "x"}}), "members[0].role", id="in-place-of-a-text"),
        pytest.param(spec_document(HISTORIAN, nodes=[{"code": "x"}]), "nodes", id="nodes"),
    ],
)
def test_code_has_no_field(document: dict[str, Any], place: str) -> None:
    assert refusals(document) == {("format", place)}


@pytest.mark.parametrize(
    ("document", "fault"),
    [
        pytest.param(
            spec_document(*(member(f"builder{n}", role=f"{n}", team="architect") for n in range(2))),
            ("reserved_name", "members[0].team"),
            id="members-that-build-teams",
        ),
        pytest.param(spec_document(member("architect")), ("reserved_name", "members[0].name"), id="own-architect"),
        pytest.param(spec_document(member("arch1tect")), ("look_alike_name", "members[0].name"), id="look-alike"),
        pytest.param(
            spec_document(member(server="architect", tools=["architect.build"])),
            ("unknown_server", "members[0].server"),
            id="architect-as-a-server",
        ),
        pytest.param(spec_document(member(team="news")), ("cycle", "members[0].team"), id="team-of-itself"),
        pytest.param(spec_document(member(team="triple")), ("depth", "members[0].team"), id="fourth-level"),
        pytest.param(spec_document(*(member(f"m{n}") for n in range(13))), ("format", "members"), id="many-members"),
    ],
)
def test_team_that_would_build_teams_or_grow_without_end_is_refused(
    document: dict[str, Any], fault: tuple[str, str]
) -> None:
    assert "A team that builds two teams" in GOALS["fork-bomb"]
    if fault[0] == "look_alike_name":
        assert fault in {(one.rule, one.path) for one in checked(team_of(document), WORLD)}
    else:
        assert fault in refusals(document)
