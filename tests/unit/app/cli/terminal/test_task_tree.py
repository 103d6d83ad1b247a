"""The tree of tasks on a terminal."""

import io
import re
from typing import Any

from rich.console import Console

from starling.app.cli.terminal.task_tree import TaskTree

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
        screen.append(_CODES.sub("", line).replace("\r", "").rstrip())
    return [line for line in screen if line]


def test_tasks_and_calls_show_their_status() -> None:
    lines = shown(_PLAN, _START, _CALL, _ANSWER, ended("t1"), ended("t2", "failed", "the server is away"))

    assert lines == [
        "✓ mcp_agent_time: the time in Lima",
        '    ✓ time.now(zone="UTC"): 12:00',
        "✗ mcp_agent_disk: how full it is: the server is away",
    ]


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
