"""Goals that ask for more than a team may be: those of `architect_goals.jsonl` that checks decide.

Each goal is written into a spec as a model would that does what it is asked.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from architect.checks import DESIGN_RULES, checked
from architect.compiler import compile_team
from architect.spec_format import team_of
from starling.core.teams.spec import TeamInvalidError
from tests.support.team_specs import WORLD, member, spec_document

_TESTS = Path(__file__).parents[2]
_FILE = _TESTS / "data/security/architect_goals.jsonl"
GOALS = {row["cat"]: row["goal"] for row in map(json.loads, _FILE.read_text("utf-8").splitlines())}


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
    assert "A team that builds two teams" in GOALS["fork-bomb"]
    if fault[0] == "look_alike_name":
        assert fault in {(one.rule, one.path) for one in checked(team_of(document), WORLD)}
    else:
        assert fault in refusals(document)


_ADDED_LATER = "integration/http/test_tools_added_later.py"
SHOWN_BY = {
    "escalate": [
        "unit/architect/test_checks.py::test_spec_names_only_what_its_caller_may_call",
        "integration/app/test_team_publication.py::test_team_that_fails_a_check_is_not_published",
        "integration/app/test_team_publication.py::test_published_team_calls_only_what_its_caller_may_call",
    ],
    "name-collision": ["unit/architect/test_checks.py::test_spec_that_breaks_a_rule_is_found_at_its_place"],
    "name-sql": [
        "unit/architect/test_spec_format.py::test_field_that_breaks_the_format_is_found_with_reason_and_remedy"
    ],
    "fork-bomb": [
        "unit/architect/test_checks.py::test_spec_that_breaks_a_rule_is_found_at_its_place",
        "unit/architect/test_hostile_goals.py::test_team_that_would_build_teams_or_grow_without_end_is_refused",
        "integration/http/test_team_builds.py::test_tenant_has_a_limited_number_of_teams_that_are_not_archived",
    ],
    "code-in-spec": [
        "unit/architect/test_spec_format.py::test_field_that_breaks_the_format_is_found_with_reason_and_remedy"
    ],
    "format": ["unit/architect/test_spec_fuzz.py::test_text_that_some_engine_evaluates_arrives_as_it_is"],
    "tool-later": [
        "unit/architect/test_compiler.py::test_tools_that_a_server_gets_later_do_not_become_part_of_a_star",
        "integration/app/test_team_publication.py::test_tool_that_was_not_there_at_the_proof_needs_approval",
        f"{_ADDED_LATER}::test_team_of_a_whole_server_calls_a_tool_that_came_later_only_after_its_next_activation",
        f"{_ADDED_LATER}::test_server_that_came_later_becomes_part_of_the_next_build_and_not_of_the_team",
    ],
    "key-scope": ["integration/http/test_team_builds.py::test_key_without_the_scope_teams_builds_and_proves_nothing"],
    "crash": [
        "integration/brain/test_team_builds.py::test_build_whose_worker_is_lost_at_an_approved_activation_activates_once"
    ],
    "other-worker": [
        "integration/brain/test_team_builds.py::test_build_whose_worker_is_lost_at_an_approved_activation_activates_once",
        "integration/app/test_teams.py::test_activated_team_is_on_the_roster_of_another_process_with_its_first_epoch",
    ],
    "empty": [
        "integration/http/test_team_builds.py::test_unusable_goal_is_refused",
        "integration/http/test_team_builds.py::test_nul_in_a_goal_is_replaced_as_in_any_request",
        "integration/http/test_team_builds.py::test_goal_of_emoji_alone_is_accepted_as_it_is",
    ],
}
"""The tests that show what each goal comes to, by its category."""


@pytest.mark.parametrize("cat", GOALS)
def test_what_each_goal_comes_to_is_shown_by_a_test(cat: str) -> None:
    for test in SHOWN_BY[cat]:
        file, _, name = test.partition("::")
        assert f"def {name}(" in (_TESTS / file).read_text("utf-8")
