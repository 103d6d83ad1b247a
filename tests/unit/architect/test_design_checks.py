"""The rules for teams that are designed: what breaks each of them, and a design that keeps all."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from architect.checks import DESIGN_RULES, checked
from architect.team_world import TeamWorld
from starling.core.principal import Grant
from starling.core.teams.spec import Finding, TeamSpec
from starling.core.teams.stars import StarLimits
from starling.core.tool_calls import Effect
from tests.support.team_specs import SERVERS, WORLD, grant, member, star, team_spec

HISTORIAN = member(server="git", tools=["git.git_log"])
CLOCK = member("clock", role="clock", goal="Tells the time.", server="time")
WRITER = member("writer", role="writer", goal="Writes it down.")
TIME = "time.get_current_time"


def criterion(name: str = "called", **fields: Any) -> dict[str, Any]:
    return {"id": name, "text": "It is so.", "kind": "tool_called", "value": "git.git_log", **fields}


def example(name: str = "one", **fields: Any) -> dict[str, Any]:
    return {
        "id": name,
        "input": f"What is new on day {name}?",
        "criteria": ["called"],
        "must_call": ["git.git_log"],
        **fields,
    }


def design(*members: dict[str, Any], **fields: Any) -> TeamSpec:
    """Return a sound design but for the given members and fields."""
    whole = {"criteria": [criterion()], "examples": [example(), example("two", must_call=["git.git_log", TIME])]}
    return team_spec(*(members or (HISTORIAN, CLOCK, WRITER)), **whole | fields)


def findings(team: TeamSpec, world: TeamWorld = WORLD) -> Sequence[Finding]:
    return checked(team, world, DESIGN_RULES)


def found(team: TeamSpec, world: TeamWorld = WORLD) -> list[tuple[str, str]]:
    return [(finding.rule, finding.path) for finding in findings(team, world)]


def text(value: str, **fields: Any) -> dict[str, Any]:
    return criterion("says", kind="text_contains", value=value, **fields)


def asks(*names: str, request: str = "What is new today?") -> list[dict[str, Any]]:
    """Return two examples that name these criteria; the first one has the request."""
    whole: dict[str, Any] = {"criteria": [*names], "must_call": ["git.git_log", TIME]}
    return [example(input=request, **whole), example("two", input="Hello.", **whole)]


UNSAFE = member(server="git", tools=["git.git_commit"])
COMMITS = {
    "criteria": [criterion(value="git.git_commit")],
    "examples": [example(must_call=["git.git_commit"]), example("two", must_call=["git.git_commit"])],
}


def test_sound_design_has_no_finding() -> None:
    assert found(design()) == []


@pytest.mark.parametrize(
    ("team", "broken"),
    [
        pytest.param(
            design(HISTORIAN, CLOCK, member("second", role="other", server="git", tools=["git.git_log"])),
            [("same_purpose", "members[2]")],
            id="tools-of-another",
        ),
        pytest.param(
            design(HISTORIAN, CLOCK, member("second", role="other", server="git", approval="effects")),
            [("same_purpose", "members[2]")],
            id="more-than-the-tools-of-another",
        ),
        pytest.param(
            design(
                CLOCK,
                member(team="git_team", approval="effects"),
                member("b", role="b", team="git_team", approval="effects"),
            ),
            [("same_purpose", "members[2]")],
            id="team-of-another",
        ),
        pytest.param(
            design(HISTORIAN, CLOCK, member("second", role=" Historian!", goal="tells WHAT changed")),
            [("same_purpose", "members[2]")],
            id="role-and-goal-of-another",
        ),
        pytest.param(design(UNSAFE, **COMMITS), [("unsafe_without_approval", "members[0].approval")], id="unsafe-tool"),
        pytest.param(
            design(member(server="git"), CLOCK),
            [("unsafe_without_approval", "members[0].approval")],
            id="unsafe-tool-of-its-server",
        ),
        pytest.param(
            design(member(team="git_team"), CLOCK),
            [("unsafe_without_approval", "members[0].approval")],
            id="unsafe-tool-of-an-inner-team",
        ),
        pytest.param(design(examples=[]), [("few_cases", "examples")], id="no-case"),
        pytest.param(design(examples=asks("called")[:1]), [("few_cases", "examples")], id="one-case"),
        pytest.param(
            design(
                examples=[example(must_call=["git.git_log", TIME]), example("two", input=" what is NEW\non day one?")]
            ),
            [("few_cases", "examples")],
            id="one-request-twice",
        ),
        pytest.param(
            design(criteria=[criterion(), text("17:00")]),
            [("unjudged_criterion", "criteria[1]")],
            id="criterion-without-an-example",
        ),
        pytest.param(
            design(criteria=[criterion(), criterion("kept", kind="artifact", value="report.md")]),
            [("unjudged_criterion", "criteria[1]")],
            id="artifact-without-an-example",
        ),
        pytest.param(
            design(
                WRITER,
                criteria=[criterion("kept", kind="artifact", value="report.md")],
                examples=[example(criteria=["kept"], must_call=[]), example("two", criteria=["kept"], must_call=[])],
            ),
            [("unjudged_criterion", "criteria[0].kind")],
            id="artifact-without-a-tool",
        ),
        pytest.param(
            design(examples=[example(must_call=[TIME], must_not_call=["git.git_log"]), example("two")]),
            [("unjudged_criterion", "examples[0].criteria[0]")],
            id="call-that-the-example-forbids",
        ),
        pytest.param(
            design(criteria=[criterion(value="git.git_commit")]), [("criteria", "criteria[0].value")], id="call-of-none"
        ),
        pytest.param(
            design(criteria=[text("…")], examples=asks("says")),
            [("trivial_criterion", "criteria[0].value")],
            id="punctuation",
        ),
        pytest.param(
            design(criteria=[text("e")], examples=asks("says", request="Hm?")),
            [("trivial_criterion", "criteria[0].value"), ("trivial_criterion", "examples[1].criteria[0]")],
            id="one-letter",
        ),
        pytest.param(
            design(criteria=[text("new\n TODAY")], examples=asks("says")),
            [("trivial_criterion", "examples[0].criteria[0]")],
            id="text-of-the-request",
        ),
        pytest.param(
            design(examples=[*asks("called"), example("three", criteria=[], must_call=[])]),
            [("trivial_criterion", "examples[2]")],
            id="example-without-demands",
        ),
        pytest.param(
            design(
                examples=[*asks("called"), example("three", criteria=[], must_call=[], must_not_call=["git.git_log"])]
            ),
            [("trivial_criterion", "examples[2]")],
            id="example-that-only-forbids",
        ),
    ],
)
def test_design_that_breaks_a_rule_is_found_at_its_place(team: TeamSpec, broken: list[tuple[str, str]]) -> None:
    clock_team = star("clock_team", CLOCK)

    assert found(team, replace(WORLD, teams={**WORLD.teams, "clock_team": clock_team})) == broken


@pytest.mark.parametrize(
    ("team", "caller"),
    [
        pytest.param(design(UNSAFE | {"approval": "effects"}, **COMMITS), None, id="member"),
        pytest.param(design(member(team="git_team", approval="effects"), CLOCK), None, id="member-for-a-team"),
        pytest.param(design(member(team="careful"), CLOCK), None, id="member-inside-its-team"),
        pytest.param(
            design(member(server="git"), CLOCK, grants={"servers": ["time"], "tools": ["git.git_log"]}),
            None,
            id="tool-that-the-spec-leaves-out",
        ),
        pytest.param(design(member(server="git"), CLOCK), grant("git.git_log", "time"), id="tool-beyond-the-caller"),
        pytest.param(
            design(
                member(server="mail"),
                criteria=[],
                examples=[example(name, criteria=[], must_call=["mail.put"]) for name in ("one", "two")],
            ),
            None,
            id="tool-that-can-be-repeated",
        ),
    ],
)
def test_member_without_an_unsafe_tool_of_its_own_needs_no_approval(team: TeamSpec, caller: Grant | None) -> None:
    careful = star("careful", member(server="git", approval="effects"))
    servers = {**SERVERS, "mail": {"put": Effect.IDEMPOTENT}}

    assert found(team, replace(WORLD, servers=servers, teams={**WORLD.teams, "careful": careful}, grant=caller)) == []


@pytest.mark.parametrize(
    ("team", "shared"),
    [
        pytest.param(design(HISTORIAN, CLOCK, WRITER, member("editor", goal="Edits it.")), [], id="two-writers"),
        pytest.param(
            design(
                member(server="wide", tools=["wide.a", "wide.b"]),
                member("second", role="second", server="wide", tools=["wide.b", "wide.c"]),
                criteria=[],
                examples=[example(name, criteria=[], must_call=["wide.b"]) for name in ("one", "two")],
            ),
            [],
            id="half-of-the-tools",
        ),
        pytest.param(
            design(
                member(server="wide", tools=["wide.a", "wide.b", "wide.c"]),
                member("second", role="second", server="wide", tools=["wide.b", "wide.c", "wide.d"]),
                criteria=[],
                examples=[example(name, criteria=[], must_call=["wide.b"]) for name in ("one", "two")],
            ),
            ["'second' has the purpose of 'historian': both have wide.b, wide.c."],
            id="more-than-half-of-the-tools",
        ),
    ],
)
def test_members_have_one_purpose_where_they_share_most_tools(team: TeamSpec, shared: list[str]) -> None:
    world = replace(WORLD, servers={**SERVERS, "wide": dict.fromkeys("abcd", Effect.READ)})

    assert [finding.reason for finding in findings(team, world)] == shared


@pytest.mark.parametrize(
    ("limits", "most", "broken"),
    [
        pytest.param({}, StarLimits(seconds=1, iterations=1, tokens=1), [], id="none-asked-for"),
        pytest.param(
            {"seconds": 300, "iterations": 6, "tokens": 9},
            StarLimits(seconds=300, iterations=6, tokens=9),
            [],
            id="those-of-a-run",
        ),
        pytest.param({"seconds": 86_400, "iterations": 50, "tokens": 10**9}, StarLimits(), [], id="run-without-limits"),
        pytest.param(
            {"seconds": 300.5, "iterations": 7, "tokens": 10**9},
            StarLimits(seconds=300, iterations=6, tokens=9),
            ["limits.seconds", "limits.iterations", "limits.tokens"],
            id="above-those-of-a-run",
        ),
    ],
)
def test_limits_are_at_most_those_of_a_run(limits: dict[str, Any], most: StarLimits, broken: list[str]) -> None:
    assert found(design(limits=limits), replace(WORLD, limits=most)) == [("caller_limits", path) for path in broken]


def test_limits_are_told_as_whole_numbers() -> None:
    (finding,) = findings(design(limits={"tokens": 10**9}), replace(WORLD, limits=StarLimits(tokens=200_000)))

    assert finding.reason == "The team may use 1,000,000,000 tokens, and a whole run 200,000."
    assert finding.remedy == "Set at most 200000, or leave it out."


def test_findings_of_a_design_name_nothing_that_the_caller_may_not_call() -> None:
    team = design(
        member(server="git"),
        member("second", role="other", server="git"),
        member("inner", role="inner", team="git_team"),
        CLOCK,
        examples=[example(name, criteria=[], must_call=[TIME]) for name in ("one", "two")],
        criteria=[],
    )

    texts = " ".join(str(finding) for finding in findings(team, replace(WORLD, grant=grant("git.git_log", "time"))))

    assert "same_purpose" in {finding.rule for finding in findings(team)}
    assert "git_log" in texts
    assert "git_commit" not in texts
