"""Reports of builds: what a person reads of a team, its proof, missing parts and faults."""

from dataclasses import replace
from typing import Any

import pytest

from architect.report import built_text, gap_text, proof_text, refused_text, untried_text
from architect.team_store import PublishedVersion
from starling.core.events.build_events import CriterionReport, MissingPart
from starling.core.teams.proofs import CaseReport, PartReport, ProofReport, TrialCall, TrialRecord
from starling.core.teams.spec import Finding
from starling.core.tool_calls import AnswerSource
from tests.support.team_specs import member, team_spec

TEAM = team_spec(
    member(server="git", tools=["git.git_log"]),
    member("clock", role="Teller of\n the time", server="time"),
    member("inner", team="git_team"),
    member("wide", server="wide", tools=[f"wide.t{number}" for number in range(7)]),
    member("writer"),
)


def published(**fields: Any) -> PublishedVersion:
    return replace(PublishedVersion("news", 2, "proven", "", ()), **fields)


def case(name: str, *sources: AnswerSource, **unmet: str) -> CaseReport:
    calls = [TrialCall(tool="git.git_log", path="t1", status="succeeded", source=source) for source in sources]
    return CaseReport(
        id=name,
        passed=not unmet,
        simulation_only=bool(sources) and "live" not in sources,
        criteria=(
            CriterionReport(id="met", met=True),
            *(CriterionReport(id=one, met=False, reason=reason) for one, reason in unmet.items()),
        ),
        trial=TrialRecord(path="t1", reply="Done.", calls=tuple(calls)),
    )


def proof(*cases: CaseReport, state: str = "proven", threshold: float = 1.0) -> ProofReport:
    return ProofReport.model_validate(
        {
            "state": state,
            "score": 1.0,
            "threshold": threshold,
            "cases": cases,
            "spec_hash": "",
            "tools": {},
            "run_id": "run1",
            "trace_id": "trace1",
        }
    )


PROVEN = proof(case("one", "live"), case("two", "live"))


def test_report_of_a_build_has_members_cases_missing_parts_and_the_next_step() -> None:
    tried = proof(case("one", "live", "live", "simulated", "fixture"), case("two", dated="There is no\ndate."))

    text = built_text(
        TEAM,
        published(state="draft"),
        tried.model_copy(update={"state": "failed"}),
        [MissingPart(part="book a flight", nearest=["time", "git"]), MissingPart(part="sing")],
    )

    assert text == (
        "news@2 is stored: draft.\n"
        "Tells what is new.\n"
        "\n"
        "Members:\n"
        "- historian (git: git_log): historian\n"
        "- clock (time: all its tools): Teller of the time\n"
        "- inner (the team git_team): historian\n"
        "- wide (wide: t0, t1, t2, t3, t4 and 2 more): historian\n"
        "- writer (only writes): historian\n"
        "\n"
        "Proof: 1 of 2 cases passed. 2 of 3 criteria are met, 100% have to be.\n"
        "- one: passed. 4 calls answered: 2 live, 1 simulated, 1 fixture.\n"
        "- two: failed. No tool was called.\n"
        "  - dated: There is no date.\n"
        "\n"
        "It does not serve these parts of the goal:\n"
        "- book a flight. Nearest: time, git.\n"
        "- sing. Nothing comes near.\n"
        "\n"
        "The proof failed. `starling team prove news@2` tries it again; `starling team export news@2` prints the spec, "
        "to be corrected and imported."
    )


@pytest.mark.parametrize(
    ("stored", "shown", "first", "last"),
    [
        pytest.param(
            published(state="active", epoch=4),
            PROVEN,
            "The proof of news@2 ended as: proven.",
            "- two: passed. 1 call answered: 1 live.",
            id="active",
        ),
        pytest.param(
            published(),
            PROVEN,
            "The proof of news@2 ended as: proven.",
            "`starling team activate news@2` lets runs use it.",
            id="proven",
        ),
        pytest.param(
            published(approval="These tools may change something that can't be taken back: git.git_commit."),
            PROVEN,
            "The proof of news@2 ended as: proven.",
            "These tools may change something that can't be taken back: git.git_commit. Only an admin may activate it: "
            "`starling team activate news@2`.",
            id="proven-with-unsafe-tools",
        ),
        pytest.param(
            published(state="unproven", approval="It is not proven."),
            proof(case("one", "simulated"), case("two", "live"), state="unproven"),
            "The proof of news@2 ended as: unproven.",
            "It is not proven. No server gave a result in one. Only an admin may activate it: "
            "`starling team activate news@2`.",
            id="simulated",
        ),
        pytest.param(
            published(state="unproven"),
            proof(case("one", "live"), state="unproven"),
            "The proof of news@2 ended as: unproven.",
            "It is not proven. Fewer than 2 cases with a criterion about the answer passed. Only an admin may "
            "activate it: `starling team activate news@2`.",
            id="one-case",
        ),
        pytest.param(
            published(state="active"),
            proof(case("one", dated="No date."), state="failed"),
            "The proof of news@2 ended as: failed.",
            "The proof failed. `starling team prove news@2` tries it again; `starling team export news@2` prints the "
            "spec, to be corrected and imported.",
            id="active-and-failed",
        ),
    ],
)
def test_report_of_a_proof_says_what_it_came_to_and_what_to_do_next(
    stored: PublishedVersion, shown: ProofReport, first: str, last: str
) -> None:
    lines = proof_text(stored, shown).splitlines()

    assert (lines[0], lines[-1]) == (first, last)


def test_report_names_what_nobody_judged_below_the_cases() -> None:
    unproven = PROVEN.model_copy(update={"state": "unproven", "parts": (PartReport(part="Sing\na song."),)})

    texts = built_text(TEAM, published(state="unproven"), unproven), proof_text(published(), unproven)

    for text in texts:
        assert (
            "- two: passed. 1 call answered: 1 live.\n\n"
            "What nobody judged:\n- No case tried the part 'Sing\\na song.' by live results.\n\nIt is not proven."
        ) in text
    assert "nobody judged" not in proof_text(published(), PROVEN)


def test_report_of_a_gap_names_each_missing_part_with_what_came_nearest() -> None:
    text = gap_text([MissingPart(part="book\na flight", nearest=["time"])])

    assert text.startswith("No team was built.")
    assert "- book a flight. Nearest: time.\n" in text
    assert "--partial" in text


def test_report_of_a_gap_with_few_members_allowed_says_that_more_may_help() -> None:
    text = gap_text([MissingPart(part="book a flight", nearest=["time"])], members=1)

    assert text.startswith("No team was built. A team of at most 1 member would not serve these parts of the goal:\n")
    assert "\nAllow more members (`--members`" in text


def test_report_of_a_refused_design_names_each_fault_with_its_place() -> None:
    findings = [Finding("members[0].tools[1]", "unknown_tool", "There is no tool 'a.b'.", "Did you mean 'a.c'?")]

    text = refused_text(findings)

    assert "- members[0].tools[1]: There is no tool 'a.b'. Did you mean 'a.c'? (unknown_tool)\n" in text


def test_report_of_a_design_with_one_case_says_how_to_add_another() -> None:
    few = Finding("examples", "few_cases", "The examples have 1 different request.", "Add examples.")

    text = refused_text([few])

    assert (
        "- examples: The examples have 1 different request. Add examples. (few_cases)\n\nAdd requests of your own"
        in text
    )
    assert "`--case FILE`" in text
    assert text.endswith("value: percent}]")


def test_report_of_cases_that_do_not_fit_the_design_does_not_blame_the_design() -> None:
    text = refused_text([Finding("cases[0].must_call[0]", "examples", "No member has the tool 'a.b'.", "Remove it.")])

    assert text.splitlines() == [
        "No team was built.",
        "Your cases don't fit the team that was designed:",
        "- cases[0].must_call[0]: No member has the tool 'a.b'. Remove it. (examples)",
        "",
        "Correct them, or repeat the request with a goal that says what they are for.",
    ]


@pytest.mark.parametrize(
    ("rule", "path", "last"),
    [
        (
            "few_cases",
            "examples",
            "  criteria: [{id: share, kind: text_contains, text: It names a share., value: percent}]",
        ),
        ("examples", "cases[0].must_call[0]", "Correct the cases that you sent."),
        ("examples", "examples[0].must_call[0]", "Import a version with other examples."),
    ],
)
def test_report_of_a_team_that_was_not_tried_says_whose_cases_are_to_be_changed(
    rule: str, path: str, last: str
) -> None:
    text = untried_text("news@1", [Finding(path, rule, "It is wrong.", "Correct it.")])

    assert text.splitlines()[0] == "news@1 was not tried, because its cases can't show that it works:"
    assert text.splitlines()[-1] == last


def test_long_texts_are_cut_in_reports() -> None:
    text = gap_text([MissingPart(part="x" * 5_000)])

    assert f"- {'x' * 299}…." in text
    assert "x" * 300 not in text


def test_report_shows_the_first_of_many_criteria_that_a_case_does_not_meet() -> None:
    failed = case("one", "live", **{f"c{number}": "No." for number in range(400)})

    text = proof_text(published(state="draft"), proof(failed, state="failed"))

    assert "  - c4: No.\n  - 395 more\n" in text
    assert "c5" not in text
