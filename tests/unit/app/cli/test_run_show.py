"""What `starling run show` prints of a run."""

from typing import Any

from starling.app.cli.run.show import run_parts
from tests.support.build_events import DESIGN, FAULTY, PASSED, SOUND, STORED

DOCUMENT: dict[str, Any] = {
    **{name: [] for name in ("tasks", "interrupts", "logs", "builds", "feedback")},
    "behind": None,
    "result": None,
}


def test_skills_of_tasks_are_named() -> None:
    used = {"id": "01a1f8ac", "task": "How full is {path}?", "followed": False}
    task = {"path": "t1", "agent": "a", "text": "Look", "attempts": [], "skills": [used, {**used, "followed": True}]}

    parts = run_parts({**DOCUMENT, "tasks": [task]}, "last")

    assert parts[1:] == [
        (
            "Skills",
            [
                "t1       01a1f8ac not followed: How full is {path}?",
                "t1       01a1f8ac followed: How full is {path}?",
            ],
        )
    ]


def test_logs_of_servers_are_shown_with_the_call_that_they_belong_to() -> None:
    log = {"call_id": "t1.0.0", "name": "db.query", "level": "warning", "logger": "db", "message": "slow\ntoday"}

    assert run_parts({**DOCUMENT, "logs": [log]}, "last") == [
        ("Logs", ["t1.0.0   db.query warning, db: slow today"]),
    ]


def test_feedback_is_shown_with_its_author() -> None:
    given = {"score": 0.5, "comment": "Late,\nbut right.", "by": "local"}

    parts = run_parts({**DOCUMENT, "feedback": [given, {**given, "comment": "", "score": 1.0}]}, "last")

    assert parts == [("Feedback", ["0.5 by local: Late, but right.", "1 by local"])]


def test_run_without_any_part_has_no_lines() -> None:
    assert run_parts(DOCUMENT, "last") == []


def test_build_is_shown_within_80_columns() -> None:
    ((title, lines),) = run_parts({**DOCUMENT, "builds": [DESIGN, FAULTY, SOUND, PASSED, STORED]}, "last")

    assert title == "Build"
    assert lines[-3:] == [
        "Checks: sound",
        "Case one passed; calls: 2 live, 1 simulated",
        "machine_watch@1 is active from epoch 4 on.",
    ]
    assert max(map(len, lines)) <= 78  # and two of the indentation
