"""The tree of tasks on a terminal."""

import io
import re
from typing import Any

import pytest
from rich.console import Console
from starling.app.cli.terminal.task_tree import TaskTree

from tests.support.build_events import DESIGN, FAILED, PASSED, PLAN, SOUND, START, STORED, trial

_PLAN: dict[str, Any] = {
    "type": "plan",
    "version": 1,
    "tasks": [
        {"id": "t1", "agent": "mcp_agent_time", "task": "the time in Lima", "depends_on": [], "status": "pending"},
        {"id": "t2", "agent": "mcp_agent_disk", "task": "how full it is", "depends_on": ["t1"], "status": "pending"},
    ],
}
_START = {"type": "task_start", "task_id": "t1", "agent": "mcp_agent_time", "attempt": 1}
_CALL = {"type": "tool_start", "task_id": "t1", "name": "time.now", "args": {"zone": "UTC"}, "call_id": "t1.0.0"}
_ANSWER = {"type": "tool_result", "name": "time.now", "call_id": "t1.0.0", "status": "succeeded", "result": "12:00"}
_SAID = {"type": "thinking", "content": "Noon.", "message_id": "m"}
_ERASE = "\x1b[2K"  # the whole line
_CODES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def ended(task: str, status: str = "approved", summary: str = "") -> dict[str, Any]:
    return {"type": "task_result", "task_id": task, "agent": "a", "status": status, "summary": summary}


def shown(*events: dict[str, Any], width: int = 80) -> list[str]:
    """Return the lines that a terminal is left with."""
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=width, height=40, soft_wrap=True, highlight=False)
    with TaskTree(console, live=False) as tree:
        for number, event in enumerate(events, start=1):
            tree.feed(number, str(event["type"]), {name: value for name, value in event.items() if name != "type"})
    screen: list[str] = []
    for line in file.getvalue().split("\n"):
        ups = line.count("\x1b[1A")
        screen = screen[: len(screen) - ups] if ups else screen
        screen.append(_CODES.sub("", line.rpartition(_ERASE)[2]).replace("\r", "").rstrip())
    return [line for line in screen if line]


def test_tasks_and_calls_show_their_status() -> None:
    lines = shown(_PLAN, _START, _CALL, _ANSWER, ended("t1"), ended("t2", "failed", "the server is away"))

    assert lines == [
        "✓ mcp_agent_time: the time in Lima",
        '    ✓ time.now(zone="UTC"): 12:00',
        "✗ mcp_agent_disk: how full it is: the server is away",
    ]


def test_call_of_a_trial_shows_what_answered_it() -> None:
    answer = _ANSWER | {"simulated": "simulated", "result": "[simulated: time.now was not called]\n12:00"}

    assert '    ✓ time.now(zone="UTC"): [simulated] 12:00' in shown(_PLAN, _START, _CALL, answer, ended("t1"))


@pytest.mark.parametrize("kind", ["route", "confetti"])
def test_event_that_shows_nothing_leaves_the_tree_as_it_is(kind: str) -> None:
    assert shown(_PLAN, {"type": kind, "reason": ""}, _START) == shown(_PLAN, _START)


def test_a_rejected_attempt_and_its_repetition_are_told() -> None:
    verdict = {"type": "reflection", "task_id": "t1", "attempt": 1, "status": "REJECTED", "reasons": ["wrong zone"]}

    rejected = shown(_PLAN, _START, verdict)
    again = shown(_PLAN, _START, verdict, _START | {"attempt": 2})

    assert "… mcp_agent_time: the time in Lima: rejected: wrong zone" in rejected
    assert "… mcp_agent_time: the time in Lima: attempt 2" in again


def test_the_answer_comes_below_the_tree_and_ended_tasks_are_not_drawn_again() -> None:
    lines = shown(_PLAN, _START, ended("t1"), _SAID, ended("t2"))

    assert lines == [
        "✓ mcp_agent_time: the time in Lima",
        "· mcp_agent_disk: how full it is",
        "Answer",
        "Noon.",
        "✓ mcp_agent_disk: how full it is",
    ]


def test_lines_keep_to_the_width_and_hold_no_control_characters() -> None:
    noisy = _ANSWER | {"result": "\x1b[2J" + "long " * 60}

    lines = shown(_PLAN, _START, _CALL, noisy, width=40)

    assert max(map(len, lines)) <= 40
    assert "\x1b[2J" not in "".join(lines)


_TEAM_PLAN: dict[str, Any] = {
    "type": "plan",
    "path": "t1",
    "version": 1,
    "tasks": [{"id": "t1", "agent": "watcher", "task": "look", "depends_on": [], "status": "pending"}],
}


def inside(event: dict[str, Any], path: str) -> dict[str, Any]:
    """An event of the team's task t1, on a path inside the run's t1."""
    changed = {"path": path, "agent": "watcher"} | ({"call_id": f"{path}.0.0"} if "call_id" in event else {})
    return event | {name: value for name, value in changed.items() if name != "agent" or "agent" in event}


def test_tasks_of_team_are_below_the_task_that_it_works_on() -> None:
    lines = shown(
        _PLAN,
        _START | {"path": "t1"},
        _TEAM_PLAN,
        *(inside(event, "t1/t1") for event in (_START, _CALL, _ANSWER, ended("t1"))),
        ended("t1") | {"path": "t1"},
    )

    assert lines == [
        "✓ mcp_agent_time: the time in Lima",
        "    ✓ watcher: look",
        '        ✓ time.now(zone="UTC"): 12:00',
        "· mcp_agent_disk: how full it is",
    ]


def test_second_attempt_of_team_goes_on_in_the_lines_of_its_first() -> None:
    again = inside(_START, "t1:2/t1") | {"attempt": 1}

    lines = shown(_PLAN, _START, _TEAM_PLAN, inside(_START, "t1/t1"), _TEAM_PLAN | {"path": "t1:2"}, again)

    assert [line.strip() for line in lines[-3:]] == [
        "… mcp_agent_time: the time in Lima",
        "… watcher: look",
        "· mcp_agent_disk: how full it is",
    ]


def test_tasks_of_a_case_are_below_it_while_it_is_tried() -> None:
    lines = shown(PLAN, START, *list(trial("t1.case-one"))[:4])

    assert lines == [
        "… architect: a team",
        "    … Case one",
        "        … disk: How full is it?",
        '            ✓ system_health.disk(path="/"): 90 % 90 % 90 % 90 % 90 % 90 % 90 % …',
    ]


def test_case_that_was_tried_leaves_its_outcome_above_the_tree() -> None:
    cases = [*trial("t1.case1"), PASSED, *trial("t1.case2"), FAILED]

    lines = shown(PLAN, START, DESIGN, SOUND, *cases, STORED, ended("t1"))

    assert lines[-6:] == [
        "Checks: sound",
        "Case one passed; calls: 2 live, 1 simulated",
        "Case two failed; calls: none",
        "  ✗ sum: The answer has no sum.",
        "machine_watch@1 is active from epoch 4 on.",
        "✓ architect: a team",
    ]
    assert max(map(len, lines)) <= 80


_REPORT = {"type": "tool_progress", "progress": 2, "total": 5, "message": "reading"} | {
    name: _CALL[name] for name in ("task_id", "name", "call_id")
}
_LOG = _REPORT | {"type": "tool_log", "level": "info", "logger": "", "message": "a row"}


@pytest.mark.parametrize(
    ("event", "noted"),
    [pytest.param(_REPORT, "2 of 5: reading", id="progress"), pytest.param(_LOG, "info: a row", id="log")],
)
def test_progress_and_log_of_a_call_are_shown_at_it_until_it_is_answered(event: dict[str, Any], noted: str) -> None:
    assert f'    … time.now(zone="UTC"): {noted}' in shown(_PLAN, _START, _CALL, event)
    assert shown(_PLAN, _START, _CALL, event, _ANSWER)[1] == '    ✓ time.now(zone="UTC"): 12:00'


def test_warning_in_the_log_of_a_server_stays_above_the_tree() -> None:
    lines = shown(_PLAN, _START, _CALL, _LOG | {"level": "warning"}, _ANSWER)

    assert "t1   time.now logs warning: a row" in lines
    assert lines[-2] == '    ✓ time.now(zone="UTC"): 12:00'
