"""What a pipe gets of the events of a run."""

from typing import Any

import pytest

from starling.app.cli.terminal.event_lines import event_line
from tests.support.build_events import DESIGN, FAILED, PLAN, SOUND, STORED, Event, trial

CALL: dict[str, Any] = {"name": "time.now", "task_id": "t1", "path": "t1", "call_id": "t1.0.0"}
TASK = {"task_id": "t1", "agent": "clock", "path": "t1", "attempt": 1}
ANSWER = {"type": "tool_result", "name": "time.now", "call_id": "t3:2/t1.2.0.0", "status": "succeeded"}
USAGE = {"tokens": 12, "model_calls": 3, "tool_calls": 1}
LOG = {"type": "tool_log", **CALL, "level": "warning", "logger": "db", "message": "slow\ntoday"}


def planned(number: int, *after: str) -> dict[str, Any]:
    return {"id": f"t{number}", "agent": "clock", "task": "the\ntime", "depends_on": list(after), "status": "pending"}


def line(event: Event) -> str | None:
    return event_line(event["type"], event, "r1")


LINES: list[tuple[Event, str | None]] = [
    (
        {"type": "run_started", "run_id": "r1", "thread_id": "t", "epoch": 3},
        "Run r1 on thread t, epoch 3",
    ),
    (
        PLAN | {"tasks": [planned(1), planned(2, "t1")]},
        "Plan: t1 clock: the time; t2 clock: the time (after t1)",
    ),
    (
        PLAN | {"path": "t3:2", "version": 2, "tasks": [planned(1) | {"status": "approved"}]},
        "Plan of t3, version 2: t1 clock: the time [approved]",
    ),
    (PLAN | {"tasks": []}, None),
    (
        PLAN
        | {
            "version": 2,
            "tasks": [planned(1) | {"agent": ""}],
            "changes": [{"kind": "removed", "task_id": "t2", "reason": "t1 failed"}],
        },
        "Plan, version 2: t1 (open): the time. Changes: removed t2 (t1 failed)",
    ),
    ({"type": "task_start", **TASK}, "t1 → clock works"),
    ({"type": "task_start", **TASK, "attempt": 2}, "t1 → clock works, attempt 2"),
    ({"type": "tool_start", **CALL, "args": {"zone": "UTC"}}, 't1   calls time.now(zone="UTC")'),
    (
        {"type": "tool_progress", **CALL, "progress": 2, "total": 5, "message": "reading"},
        "t1   time.now: 2 of 5: reading",
    ),
    (LOG, "t1   time.now logs warning, db: slow today"),
    (ANSWER | {"result": '{\n "a": 1\n}'}, 't3/t1   time.now answered: { "a": 1 }'),
    (ANSWER | {"result": "away", "status": "failed"}, "t3/t1   time.now failed: away"),
    (
        {"type": "reflection", "task_id": "t1", "status": "APPROVED", "reasons": ["fine"]},
        "t1   APPROVED ✓",
    ),
    (
        {"type": "reflection", "task_id": "t1", "status": "REJECTED", "reasons": ["late", "wrong"]},
        "t1   REJECTED ✗: late; wrong",
    ),
    ({"type": "task_result", **TASK, "status": "failed", "summary": "It is away."}, "t1 clock failed: It is away."),
    ({"type": "task_result", **TASK, "status": "approved", "summary": "Noon."}, None),
    ({"type": "warning", "message": "slow", "path": "t3", "task_id": "t1"}, "Warning in t3/t1: slow"),
    ({"type": "error", "message": "over", "task_id": None}, "Error: over"),
    ({"type": "gap", "from": 1, "to": 2}, "Events 1 to 2 are no longer kept."),
    ({"type": "thinking", "content": "It", "message_id": "m"}, None),
    ({"type": "confetti", "colour": "gold"}, None),
]


@pytest.mark.parametrize(("event", "text"), LINES, ids=[event["type"] for event, _ in LINES])
def test_each_event_is_a_line_from_what_it_says_itself(event: Event, text: str | None) -> None:
    assert line(event) == text


def test_refused_answer_is_quoted_in_full() -> None:
    message = f"It answered with an invalid document. Expected: {'one object, ' * 12}. It wrote: {'x' * 300}."

    assert line({"type": "warning", "message": message, "task_id": "t1"}) == f"Warning in t1: {message}"


def test_of_a_trial_only_the_results_of_calls_and_of_failed_tasks_are_shown() -> None:
    shown = [text for event in trial("t1.case-one", failed=True) if (text := line(event))]

    assert [text[:60] for text in shown] == [
        "t1.case-one/t1   system_health.disk answered: 90 % 90 % 90 %",
        "t1.case-one/t1   files.write answered: [fixture] 90 %",
        "t1.case-one/t1 disk failed: The disk is away.",
    ]


def test_design_has_a_line_for_each_member_and_other_events_of_a_build_have_one() -> None:
    assert [(line(event) or "").splitlines()[0] for event in (SOUND, FAILED, STORED)] == [
        "Checks: sound",
        "Case two failed; calls: none",
        "machine_watch@1 is active from epoch 4 on.",
    ]
    assert "\n  disk: Watcher (system_health: disk)\n" in (line(DESIGN) or "")


def test_end_has_the_answer_its_sources_and_what_is_missing() -> None:
    done = {
        "type": "done",
        "usage": USAGE,
        "status": "budget_exhausted",
        "reply": "Noon [1].",
        "citations": [
            {
                "id": 1,
                "task_id": "t1",
                "agent": "clock",
                "tools": ["time.now"],
                "excerpts": [
                    {"text": "12:00", "start": 9, "end": 14, "call_id": "t1.0.0"},
                    {"text": "noon", "start": 90, "end": 94, "call_id": "t1.0.0", "artifact": "0f" * 32},
                    {"text": "It is noon.", "start": 0, "end": 11},
                ],
            }
        ],
        "assumptions": ["Lima is meant."],
        "degraded": [{"part": "how full it is", "reason": "the server is away"}],
    }

    assert (line(done) or "").splitlines() == [
        "Answer",
        "Noon [1].",
        "Sources",
        "  [1] clock: time.now",
        "      “12:00” (t1.0.0, 9-14)",
        "      “noon” (artifact 0f0f0f0f0f0f, 90-94)",
        "      “It is noon.” (t1, 0-11)",
        "Assumptions",
        "  Lima is meant.",
        "Not answered",
        "  how full it is: the server is away",
        "Budget exhausted: 3 model calls, 1 tool call, 12 tokens",
    ]


@pytest.mark.parametrize(
    ("reply", "shown"),
    [
        ("Noon.\n\nNot answered: how full it is (the server is away)", False),
        ("Noon.\n\nNot answered: something else (nobody can)", True),
        ("I can't tell how full it is.", True),
        ("the server\nis away, as it was before", False),
    ],
)
def test_missing_part_that_the_reply_names_is_not_repeated(reply: str, shown: bool) -> None:
    degraded = [{"part": "how full it is", "reason": "the server is away"}]
    done = {"type": "done", "usage": USAGE, "status": "succeeded", "reply": reply, "degraded": degraded}

    assert ("Not answered\n  how full it is: the server is away\n" in (line(done) or "")) == shown


@pytest.mark.parametrize(
    ("kind", "more", "how"),
    [
        ("approval_required", {"call": CALL | {"args": {"zone": "UTC"}}}, "--id i1` approves it"),
        ("clarification", {}, '--id i1 --payload \'{"answer": "…"}\'` answers'),
        ("budget_required", {}, "--id i1 --payload '{\"tokens\": 10000}'` gives more"),
        (
            "in_doubt",
            {"call": CALL | {"args": {"zone": "UTC"}}},
            '--id i1 --payload \'{"resolution": "done"}\'` decides',
        ),
    ],
)
def test_question_says_how_to_answer(kind: str, more: dict[str, Any], how: str) -> None:
    schema = {"properties": {"answer": {"examples": ["Lima"]}}} if kind == "clarification" else {}
    asked = {"id": "i1", "reason": "why", "message": "what?", "responseSchema": schema}

    shown = line({"type": kind, **asked, "expiresAt": "2026-11-20T11:12:01+00:00", **more}) or ""

    assert shown.startswith("Waits: what?\n")
    assert f"`starling run approve r1 {how}" in shown
    assert ('time.now {"zone":"UTC"}' in shown) == bool(more)
    assert ('Maybe: "Lima"' in shown) == (kind == "clarification")
