"""A run that is followed, in a pipe and on a terminal."""

import io
import re

import pytest
from rich.console import Console

from starling.app.cli.terminal.run_display import RunDisplay, TreeDisplay
from starling.core.run_document.rows import EventRow
from tests.support.build_events import APPROVAL, DESIGN, DONE, PLAN, RUN, START, STORED, Event, started, trial

ENDED: Event = {
    "type": "task_result",
    "task_id": "t1",
    "agent": "architect",
    "path": "t1",
    "attempt": 1,
    "status": "approved",
    "summary": "",
    "artifacts": [],
}
SAID: Event = {"type": "thinking", "content": "It is ", "message_id": "m"}
_ERASE = "\x1b[2K"  # the whole line
_CODES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def piped(*events: Event) -> str:
    file = io.StringIO()
    display = RunDisplay(Console(file=file))
    for seq, event in enumerate(events, start=1):
        display.feed(EventRow(seq, event["type"], event))
    return file.getvalue()


def shown(*events: Event, width: int = 80, height: int = 40) -> list[str]:
    """Return the lines that a terminal is left with."""
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=width, height=height, soft_wrap=True, highlight=False)
    with TreeDisplay(console, times=False) as display:
        display.commands = False
        for seq, event in enumerate(events, start=1):
            display.feed(EventRow(seq, event["type"], event))
    screen: list[str] = []
    for line in file.getvalue().split("\n"):
        ups = line.count("\x1b[1A")
        screen = screen[: len(screen) - ups] if ups else screen
        screen.append(_CODES.sub("", line.rpartition(_ERASE)[2]).replace("\r", "").rstrip())
    return [line for line in screen if line]


def test_pipe_gets_the_answer_once_and_no_control_characters() -> None:
    assert piped(started(), SAID, DONE | {"reply": "\x1b[31mred\x07\ttab"}) == (
        f"Run {RUN} on thread t, epoch 3\nAnswer\n�[31mred�\ttab\nSucceeded: 1 model call, 2 tool calls, 1 token\n"
    )


@pytest.mark.parametrize("kind", ["pipe", "terminal"])
def test_questions_name_the_run_that_they_are_of(kind: str) -> None:
    if kind == "pipe":
        assert f"`starling run approve {RUN} --id {APPROVAL['id']}` approves it" in piped(started(), APPROVAL)
    else:
        assert f"Waits: {APPROVAL['message']}" in shown(started(), APPROVAL)


def test_tree_is_followed_by_the_answer_without_what_was_drawn_of_it_before() -> None:
    lines = shown(started(), PLAN, START, ENDED, SAID, SAID | {"content": "built."}, DONE)

    assert lines == [
        f"Run {RUN} on thread t, epoch 3",
        "✓ t1 architect: a team",
        "Answer",
        "It is built.",
        "Succeeded: 1 model call, 2 tool calls, 1 token",
    ]


def test_after_a_question_the_tree_goes_on_with_what_is_new() -> None:
    lines = shown(started(), PLAN, START, DESIGN, APPROVAL, STORED, ENDED, DONE)

    assert [line for line in lines if "Design" in line] == [
        "    Design of machine_watch, attempt 2: Watches the disk and the memory of"
    ]
    assert lines[-5:-3] == ["✓ t1 architect: a team", "    machine_watch@1 is active from epoch 4 on."]


def test_direct_reply_leaves_no_empty_tree() -> None:
    assert shown(started(), PLAN | {"tasks": []}, DONE)[1:3] == ["Answer", "It is built."]


def test_stream_whose_first_events_are_no_longer_kept_is_shown() -> None:
    lines = shown({"type": "gap", "from": 1, "to": 2}, START, DONE)

    assert lines[:2] == ["Events 1 to 2 are no longer kept.", "– t1 architect"]


def test_tree_that_is_higher_than_the_terminal_shows_its_end_while_it_works() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80, height=6)
    display = TreeDisplay(console, times=False)
    for seq, event in enumerate([started(), PLAN, START, *list(trial("t1.case1"))[:3]], start=1):
        display.feed(EventRow(seq, event["type"], event))
    display.feed(EventRow(9, "design", DESIGN))

    frame = [str(line) for line in display.__rich__().renderables]
    display.freeze()

    assert len(frame) == 4
    assert 'system_health.disk(path="/")' in frame[-1]
