"""Builds and proofs of teams as lines of text."""

from typing import Any

import pytest
from rich.cells import cell_len

from starling.app.cli.terminal.build_text import activation_lines, build_lines, proof_report_lines, wrapped
from tests.support.build_events import APPROVAL, DESIGN, FAILED, FAULTY, FINDING, PASSED, SOUND, STORED, Event

CALLS = [
    {"tool": "system_health.disk", "path": "t1.case1/t1", "status": "succeeded", "source": "live"},
    {"tool": "files.write", "path": "t1.case1/t1", "status": "failed", "source": "simulated"},
]
TRIAL: dict[str, Any] = {
    "path": "t1.case1",
    "reply": "The disk is 90 % full. " * 40,
    "failure": "",
    "calls": CALLS,
    "verdicts": [{"member": "disk", "status": "failed", "reason": "It has no percentage."}],
    "artifacts": [],
    "tokens": 812,
    "seconds": 2.5,
}
CASE: dict[str, Any] = {
    "id": "one",
    "passed": False,
    "simulation_only": False,
    "criteria": [{"id": "percent", "met": True, "reason": ""}, {"id": "sum", "met": False, "reason": "None."}],
    "trial": TRIAL,
}
REPORT: dict[str, Any] = {
    "state": "failed",
    "score": 0.5,
    "threshold": 1.0,
    "cases": [CASE, CASE | {"simulation_only": True, "trial": TRIAL | {"reply": "", "failure": "It stopped."}}],
    "spec_hash": "a" * 64,
    "tools": {},
    "run_id": "01a1f8ac-cbf4-7cdd-97b7-5ad5f772744e",
    "trace_id": "de2196c9a4c5d6e7f8091a2b3c4d5e6f",
}


def said(event: Event, **changed: Any) -> list[str]:
    return [line for line, _ in build_lines(event | changed)]


def test_design_names_members_with_what_they_work_with_and_missing_parts() -> None:
    assert said(DESIGN) == [
        f"Design of machine_watch, attempt 2: {DESIGN['purpose']}",
        "  disk: Watcher (system_health: disk)",
        "  all: Watcher (system_health: 5 tools)",
        "  inner: Reader (team readers)",
        "  writer: Writer (no tools)",
        "  Not served: send it by SMS; nearest: mail, chat",
    ]


def test_first_design_is_shown_without_a_number() -> None:
    assert said(DESIGN, attempt=1, purpose="Watches.")[0] == "Design of machine_watch: Watches."


def test_design_without_a_team_names_what_is_missing() -> None:
    assert said(DESIGN, attempt=1, team="team", purpose="", members=[]) == [
        "Design of team: no team",
        "  Not served: send it by SMS; nearest: mail, chat",
    ]


def test_checks_are_sound_or_name_each_finding_with_place_reason_and_remedy() -> None:
    assert said(SOUND) == ["Checks: sound"]
    assert said(FAULTY) == [
        "Checks: 1 finding",
        f"  members[0].server: {FINDING['reason']} {FINDING['remedy']}",
    ]


def test_case_is_shown_with_its_outcome_the_sources_of_its_calls_and_what_is_not_met() -> None:
    assert said(PASSED) == ["Case one passed; calls: 2 live, 1 simulated"]
    assert said(FAILED) == ["Case two failed; calls: none", "  ✗ sum: The answer has no sum."]


@pytest.mark.parametrize(
    ("state", "epoch", "line"),
    [
        ("active", 4, "machine_watch@1 is active from epoch 4 on."),
        ("unproven", None, "machine_watch@1 is stored: unproven."),
    ],
)
def test_stored_version_is_shown_with_its_state_and_epoch(state: str, epoch: int | None, line: str) -> None:
    assert said(STORED, state=state, epoch=epoch) == [line]


@pytest.mark.parametrize("width", [80, 40])
@pytest.mark.parametrize("text", ["word " * 60, "w" * 300, "広" * 300], ids=["words", "one-word", "wide"])
def test_no_line_is_wider_than_the_width(width: int, text: str) -> None:
    lines = [*wrapped(f"  {text}", width)]

    assert max(map(cell_len, lines)) <= width
    assert "".join("".join(lines).split()) == "".join(text.split())


def test_wrapped_text_has_no_control_characters() -> None:
    assert not {"\x1b", "\u202e", "\n"} & {*"".join(wrapped("\x1b[2Jred\n\u202eevil", 80))}


def test_proof_is_shown_case_by_case_with_verdicts_calls_and_cost() -> None:
    lines = [line for line, _ in proof_report_lines("machine_watch@1", REPORT)]

    first, second = "\n".join(lines).split("\n\n")[1:]
    assert lines[:2] == ["The last proof of machine_watch@1 failed.", "50% of the criteria are met; 100% are demanded."]
    assert first.splitlines()[:6] == [
        "Case one failed; calls: 1 live, 1 simulated; 812 tokens, 2.5 s",
        "  ✗ sum: None.",
        "  ✓ percent",
        "  t1.case1/t1 called system_health.disk: succeeded, live",
        "  t1.case1/t1 called files.write: failed, simulated",
        "  disk failed: It has no percentage.",
    ]
    assert first.endswith("…")
    assert "  No call was answered by a server: this case proves nothing." in second.splitlines()
    assert second.splitlines()[-1] == "  It stopped."
    assert max(map(len, lines)) <= 80


def test_proof_is_shown_with_the_parts_that_were_tried_and_what_nobody_judged() -> None:
    parts: list[dict[str, Any]] = [{"part": "Measure it.", "cases": ["one", "two"]}, {"part": "Send it.", "cases": []}]
    doubts = ["No case tried the part 'Send it.' by live results.", "Nobody judged the answer of one."]

    lines = [*proof_report_lines("machine_watch@1", REPORT | {"parts": parts, "not_judged": doubts})]

    assert lines[4:7] == [("Part tried by one, two: Measure it.", None), *((doubt, "yellow") for doubt in doubts)]


def test_activation_is_shown_with_its_tools_and_the_state_of_its_proof() -> None:
    assert list(activation_lines(APPROVAL["call"]["args"])) == [
        "  team: machine_watch",
        "  version: 1",
        "  hash: 3f1c7a52d8e9",
        "  tools: files.write_file_0, files.write_file_1, files.write_file_2,",
        "    files.write_file_3, files.write_file_4, files.write_file_5",
        "  proof: unproven",
        "  not judged: No case tried the part 'Send it.' by live results.",
        "  reason: It is not proven.",
    ]
