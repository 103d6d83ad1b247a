"""Specs of teams as the commands write and read them."""

from pathlib import Path

import pytest

from starling.app.cli.platform import late_imports
from starling.core.teams.spec import SCHEMA_ID, TeamSpec
from tests.support.team_specs import member, team_spec


@pytest.mark.parametrize(
    "instructions", ["Be brief.\nName sources.", "yes", "1e5", "a\x85b\u2028c", "{secret} %TAG *a"]
)
def test_exported_spec_is_read_as_the_same_spec(tmp_path: Path, instructions: str) -> None:
    team = team_spec(member(server="git"), instructions=instructions)
    file = tmp_path / "news.yaml"

    file.write_text(late_imports.shortest_team(team.model_dump(mode="json")), "utf-8")
    (read,), findings = late_imports.read_team_file(file)

    assert not findings
    assert TeamSpec.model_validate(read).hash == team.hash


def test_printed_schema_is_the_published_one() -> None:
    assert late_imports.team_schema()["$id"] == SCHEMA_ID


@pytest.mark.parametrize(
    ("text", "inputs"),
    [
        ("input: One.", ["One."]),
        ('{"input": "One.", "must_call": ["git.log"]}', ["One."]),
        ("- input: One.\n- input: Two.", ["One.", "Two."]),
        ('[{"input": "One."}, {"input": "Two."}]', ["One.", "Two."]),
    ],
)
def test_file_has_one_case_or_a_list_of_them(tmp_path: Path, text: str, inputs: list[str]) -> None:
    (tmp_path / "cases").write_text(text)

    cases, findings = late_imports.read_team_file(tmp_path / "cases", cases=True)

    assert (findings, [case["input"] for case in cases]) == ((), inputs)


@pytest.mark.parametrize(
    ("text", "path", "said"),
    [
        ("inputs: One.", "inputs", "Did you mean 'input'?"),
        ("- input: One.\n- must_call: [git.log]", "[1].input", "Add it. The request that the team gets."),
        ("input: One.\nfixtures: [{tool: git, result: 1}]", "fixtures[0].tool", "Correct it."),
        ("input: &a One.\nmust_call: *a", "", "Correct the document at that place."),
        ("5", "", "Correct it."),
        ("[]", "", "Write one: `input` is the request"),
        ("", "", "Write one: `input` is the request"),
    ],
)
def test_fault_of_a_case_is_named_with_its_place(tmp_path: Path, text: str, path: str, said: str) -> None:
    (tmp_path / "cases.yaml").write_text(text)

    cases, findings = late_imports.read_team_file(tmp_path / "cases.yaml", cases=True)

    assert cases == ()
    assert (path, said) in [(one["path"], one["remedy"][: len(said)]) for one in findings]
