"""Team specs from YAML and JSON, and what is said of documents that are none."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from architect.spec_format import MAX_CHARS, dump_yaml, load_yaml, read_team, spec_diff, team_of
from starling.core.teams.spec import Finding, TeamInvalidError, TeamSpec
from tests.support.team_specs import member, spec_document, team_spec

YAML = "name: news\npurpose: Tells what is new.\nmembers:\n- {name: historian, role: historian, goal: Tells it.}\n"


def findings(document: object) -> tuple[Finding, ...]:
    with pytest.raises(TeamInvalidError) as caught:
        read_team(document) if isinstance(document, str) else team_of(document)
    return caught.value.findings


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


def with_result(result: object) -> dict[str, Any]:
    fixture = {"tool": "git.git_log", "result": result}
    return spec_document(member(server="git"), examples=[{"id": "one", "input": "What?", "fixtures": [fixture]}])


def test_yaml_and_json_of_one_spec_are_the_same_spec() -> None:
    document = with_result({"lines": [1, 2.5, True, None, "no"]})

    from_yaml, from_json = read_team(dump_yaml(document)), read_team(json.dumps(document))

    assert from_yaml == from_json == team_of(document)
    assert from_yaml.hash == from_json.hash


@pytest.mark.parametrize(
    "text", ["yes", "no", "on", "2026-01-01", "12:30", "010", "0x1f", "1_000", "=", "1e5", "1" * 30]
)
def test_plain_word_of_yaml_is_a_text_where_json_has_no_such_value(text: str) -> None:
    assert read_team(f"{YAML}instructions: {text}\n").instructions == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(f"{YAML}name: other\n", "at line 5, column 1: the key 'name' is used twice", id="key-twice"),
        pytest.param(
            f"{YAML}limits: {{tokens: 1, tokens: 2}}\n", "the key 'tokens' is used twice", id="inner-key-twice"
        ),
        pytest.param(f"{YAML}a: &a x\nb: *a\n", "at line 6, column 4: aliases are not allowed", id="alias"),
        pytest.param(f"{YAML}a: !!python/object/apply:os.system [touch]\n", "tags are not allowed", id="tag"),
        pytest.param(f"{YAML}a: !!bool perhaps\n", "tags are not allowed", id="tag-of-yaml"),
        pytest.param(f"{YAML}1: a\n", "at line 5, column 1: a key must be a text", id="key-of-a-number"),
        pytest.param(f"{YAML}? [a]\n: b\n", "a key must be a text", id="key-of-a-list"),
        pytest.param(f"{YAML}---\na: b\n", "but found another document", id="two-documents"),
        pytest.param("a: [", "at line 1, column 5", id="no-yaml"),
        pytest.param("a: \x00", "unacceptable character #x0000", id="nul"),
        pytest.param("- " * 1_000, "it is nested too deeply", id="deep-yaml"),
        pytest.param("[" * 1_000, "it is nested too deeply", id="deep-flow-yaml"),
        pytest.param("x" * (MAX_CHARS + 1), "200,001 characters, and 200,000 are read", id="long"),
        pytest.param('{"name": 1', "This is not JSON at line 1, column 11", id="no-json"),
        pytest.param('{"name": 1, "name": 2}', "the name 'name' is used twice", id="json-key-twice"),
        pytest.param('{"name": NaN}', "NaN is not a number of JSON", id="json-constant"),
        pytest.param('{"a":' * 30_000, "it is nested too deeply", id="deep-json"),
        pytest.param(json.dumps(with_result(nested(60))), "More than 50 objects and lists", id="deep-fixture"),
    ],
)
def test_document_that_can_not_be_read_is_refused_with_the_place(text: str, said: str) -> None:
    (finding,) = findings(text)

    assert (finding.path, finding.rule) == ("", "document")
    assert said in finding.reason


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(spec_document() | {"members": [1] * 1_500_000}, id="members"),
        pytest.param(with_result("x" * MAX_CHARS), id="text"),
    ],
)
def test_plain_data_that_are_too_long_are_refused_before_they_are_validated(document: object) -> None:
    (finding,) = findings(document)

    assert (finding.path, finding.rule) == ("", "document")
    assert "characters, and 200,000 are read" in finding.reason


@pytest.mark.parametrize(
    ("document", "path", "reason", "remedy"),
    [
        pytest.param([], "", "The value must be an object.", "Correct it. `starling team schema`", id="no-object"),
        pytest.param(spec_document(), "members", "The value must have at least 1 item, not 0.", "", id="no-members"),
        pytest.param(
            spec_document({"name": "a", "goal": "b"}),
            "members[0].role",
            "The value is missing.",
            "Add it. What it is, in a few words.",
            id="missing",
        ),
        pytest.param(
            spec_document(member(gaol="x")),
            "members[0].gaol",
            "There is no such field.",
            "Did you mean 'goal'?",
            id="typo",
        ),
        pytest.param(
            spec_document(member(), code="x"), "code", "There is no such field.", "Remove it.", id="unknown-field"
        ),
        pytest.param(
            spec_document(member(), **{"k" * 100_000: "x"}),
            f"{'k' * 60}…",
            "There is no such field.",
            "Remove it.",
            id="long-key",
        ),
        pytest.param(
            spec_document(member(runtime="java")),
            "members[0].runtime",
            "The value 'java' must be 'crewai' or 'native'.",
            "Correct it. What executes it.",
            id="choice",
        ),
        pytest.param(
            spec_document(member("Big Boss")),
            "members[0].name",
            "The value 'Big Boss' must be at most 32 lower-case letters, digits and _, and begin with",
            "",
            id="name-of-a-member",
        ),
        pytest.param(
            spec_document(member(), name="x'); DROP TABLE teams;--"),
            "name",
            "must be at most 48 lower-case letters, digits, _ and -",
            "",
            id="name-of-a-team",
        ),
        pytest.param(
            spec_document(member(), name="mcp_agent_x"),
            "name",
            "Names that begin with mcp_agent_ are reserved for the specialists of servers.",
            "",
            id="reserved-name",
        ),
        pytest.param(
            spec_document(member(role={"$eval": "x"})),
            "members[0].role",
            "must be a text",
            "",
            id="code-in-place-of-a-text",
        ),
        pytest.param(
            spec_document(member(tools=["git"])),
            "members[0].tools[0]",
            "The value 'git' must be the full name of a tool, `server.tool`.",
            "",
            id="tool",
        ),
        pytest.param(
            spec_document(member(), purpose="x" * 301),
            "purpose",
            "must have at most 300 characters, not 301.",
            "",
            id="long-text",
        ),
        pytest.param(
            spec_document(member(goal="\ud800")), "members[0].goal", "must be valid Unicode.", "", id="half-a-character"
        ),
        pytest.param(
            spec_document(member(), limits={"seconds": float("inf")}),
            "limits.seconds",
            "The value inf must be less than or equal to 86400.",
            "",
            id="number",
        ),
        pytest.param(
            with_result({"a": {1, 2}}), "examples[0].fixtures[0].result", "The value must be JSON.", "", id="no-json"
        ),
    ],
)
def test_field_that_breaks_the_format_is_found_with_reason_and_remedy(
    document: object, path: str, reason: str, remedy: str
) -> None:
    (finding,) = findings(document)

    assert (finding.path, finding.rule) == (path, "format")
    assert reason in finding.reason
    assert finding.remedy.startswith(remedy or "Correct it.")


def test_all_fields_that_break_the_format_are_found_at_once() -> None:
    document = spec_document(3, member(name="A", colour="red"), version=2)  # pyright: ignore[reportArgumentType]

    paths = [finding.path for finding in findings(document)]

    assert paths == ["version", "members[0]", "members[1].name", "members[1].colour"]


def test_values_that_postgres_can_not_hold_are_replaced_in_fixtures() -> None:
    document = with_result({"a\x00": float("inf")})
    document["examples"][0]["fixtures"][0]["arguments"] = {"b\x00": 2**70}

    (fixture,) = team_of(document).examples[0].fixtures

    assert fixture.result == {"a�": "inf"}
    assert fixture.arguments == {"b�": str(2**70)}


def json_values() -> st.SearchStrategy[Any]:
    leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    return st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
    )


@given(st.text(min_size=1, max_size=20).filter(str.strip), json_values())
def test_spec_that_was_written_as_yaml_or_json_is_read_as_it_was(purpose: str, result: object) -> None:
    team = team_of({**with_result(result), "purpose": purpose})
    document = team.model_dump(mode="json")

    assert read_team(dump_yaml(document)) == team
    assert read_team(json.dumps(document)) == team


def odd_specs() -> st.SearchStrategy[dict[str, Any]]:
    """Return specs of which any fields are something else."""
    fields = {name: json_values() for name in TeamSpec.model_fields}
    of_member = st.fixed_dictionaries({}, optional={name: json_values() for name in member(server="", tools=[])})
    members = st.lists(of_member.map(lambda odd: member(**odd) if "name" not in odd else odd), max_size=3)
    odd = st.fixed_dictionaries({}, optional={**fields, "members": members})
    return odd.map(lambda found: {**spec_document(member()), **found})


@given(st.text() | json_values() | odd_specs())
def test_any_document_is_a_spec_with_a_hash_or_has_findings(document: object) -> None:
    try:
        team = read_team(document) if isinstance(document, str) else team_of(document)
    except TeamInvalidError as error:
        found = error.findings
        assert all(finding.reason and finding.remedy for finding in found)
    else:
        assert team_of(team.model_dump(mode="json")).hash == team.hash


READER, WRITER = member("reader", server="git", tools=["git.git_log"]), member("writer")


@pytest.mark.parametrize(
    ("before", "after", "paths"),
    [
        ([READER], [READER], ()),
        ([READER], [{**READER, "role": "Tells."}], ("members[0].role",)),
        ([READER], [{**READER, "tools": ["git.git_log", "git.git_commit"]}], ("members[0].tools[1]",)),
        ([READER, WRITER], [READER], ("members[1]",)),
        ([READER], [READER, {**WRITER, "runtime": "native"}], ("members[1]",)),
        ([READER], [{**READER, "runtime": "native"}], ("members[0].runtime",)),
        ([{**READER, "runtime": "native"}], [READER], ("members[0].runtime",)),
    ],
)
def test_paths_name_what_differs(
    before: list[dict[str, Any]], after: list[dict[str, Any]], paths: tuple[str, ...]
) -> None:
    text, found = spec_diff(team_spec(*before), team_spec(*after), names=("news@1", "news@2"))

    assert found == paths
    assert bool(text) == bool(paths)


def test_text_is_a_unified_diff_of_yaml() -> None:
    before, after = team_spec(READER), team_spec(READER, WRITER)

    text, _ = spec_diff(before, after, names=("news@1", "news@2"))

    assert text.splitlines()[:2] == ["--- news@1", "+++ news@2"]
    assert "+- name: writer\n+  role: historian\n+  goal: Tells what changed.\n" in text


@pytest.mark.parametrize("sign", ["\x85", "\x9b", "\u200f", "\u2028", "\u202e", "\u2066", "\U000e0041"])
def test_written_spec_escapes_what_controls_or_reorders_a_terminal(sign: str) -> None:
    written = dump_yaml({"purpose": f"a{sign}b"})

    assert sign not in written
    assert load_yaml(written) == {"purpose": f"a{sign}b"}
