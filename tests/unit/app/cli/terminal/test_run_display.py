"""The progress display: what a person reads, from events alone."""

import io
from typing import Any

import pytest
from rich.console import Console

from starling.app.cli.terminal.run_display import RunDisplay
from tests.support.build_events import DESIGN, FAILED, PASSED, PLAN, SOUND, START, STORED, trial

_PLAN: dict[str, Any] = {
    "type": "plan",
    "version": 1,
    "plan": ["time", "disk"],
    "tasks": [
        {"id": "t1", "agent": "mcp_agent_time", "task": "the time in Lima", "depends_on": [], "status": "pending"},
        {"id": "t2", "agent": "mcp_agent_disk", "task": "how full it is", "depends_on": ["t1"], "status": "pending"},
    ],
    "thought_process": "",
}
_CALL: dict[str, Any] = {
    "name": "time.now",
    "args": {"zone": "America/Lima"},
    "task_id": "t1",
    "path": "t1",
    "call_id": "t1.0.0",
}
_USAGE = {"tokens": 12, "input_tokens": 10, "output_tokens": 2, "model_calls": 3, "tool_calls": 1}


def _result(task: str, agent: str, status: str = "approved", summary: str = "done") -> dict[str, Any]:
    ended = {"task_id": task, "agent": agent, "path": task, "attempt": 1, "status": status}
    return {"type": "task_result", **ended, "summary": summary, "artifacts": []}


def _said(text: str, message: str = "m1") -> dict[str, Any]:
    return {"type": "thinking", "content": text, "message_id": message}


def _done(reply: str, status: str = "succeeded") -> dict[str, Any]:
    return {"type": "done", "usage": _USAGE, "status": status, "reply": reply}


def _shown(
    *events: dict[str, Any], terminal: bool = False, live: bool = True, after: int = 0
) -> tuple[str, RunDisplay]:
    output = io.StringIO()
    console = Console(file=output, force_terminal=terminal, width=200, highlight=False)
    display = RunDisplay(console, live=live, after=after)
    for seq, event in enumerate(events, start=1):
        display.feed(seq, event["type"], event)
    return output.getvalue(), display


def test_the_plan_is_numbered_with_agents_and_dependencies() -> None:
    shown, _ = _shown(_PLAN)

    assert shown.splitlines() == [
        "Plan",
        "  1. mcp_agent_time: the time in Lima",
        "  2. mcp_agent_disk: how full it is (after t1)",
    ]


def test_a_call_is_shown_with_its_arguments_and_a_result_in_one_line() -> None:
    answer = {"type": "tool_result", "name": "time.now", "result": '{\n "a": 1\n}', "call_id": "t1.0.0"}

    shown, _ = _shown(_PLAN, {"type": "tool_start", **_CALL}, answer | {"status": "succeeded"})

    assert 't1   calls time.now(zone="America/Lima")' in shown
    assert 'ms: { "a": 1 }' in shown.splitlines()[-1]


@pytest.mark.parametrize(("source", "shown_as"), [("fixture", "[fixture] 12:00"), (None, "12:00")])
def test_result_of_a_call_that_a_trial_did_not_make_is_shown_with_its_source(source: str | None, shown_as: str) -> None:
    text = "[simulated: time.now was not called]\n12:00" if source else "12:00"
    call = {"type": "tool_start", **_CALL, "path": "t1.case1/t2", "call_id": "t1.case1/t2.0.0"}
    answer = {"type": "tool_result", "name": "time.now", "result": text, "call_id": "t1.case1/t2.0.0"}

    shown, _ = _shown(_PLAN, call, answer | {"status": "succeeded", "simulated": source}, live=False)

    assert shown.splitlines()[-2:] == ["Case case1", f'  ✓ time.now(zone="America/Lima"): {shown_as}']


@pytest.mark.parametrize(
    ("status", "line"),
    [("APPROVED", "t1   APPROVED ✓"), ("FIXED", "t1   FIXED ✎: wrong"), ("REJECTED", "t1   REJECTED ✗: wrong")],
)
def test_a_verdict_is_shown_with_its_reasons_where_there_was_something_to_say(status: str, line: str) -> None:
    shown, _ = _shown({"type": "reflection", "task_id": "t1", "attempt": 1, "status": status, "reasons": ["wrong"]})

    assert shown == f"{line}\n"


def test_the_answer_comes_as_it_is_written_and_is_not_repeated() -> None:
    shown, _ = _shown(_said("It is "), _said("noon."), _done("It is noon."))

    assert shown.startswith("Answer\nIt is noon.\nSucceeded: 3 model calls, 1 tool call, 12 tokens; first event ")


def test_status_of_two_words_is_written_as_words() -> None:
    shown, _ = _shown(_done("It is noon.", status="budget_exhausted"), live=False)

    assert "Budget exhausted: 3 model calls" in shown


def test_a_new_message_replaces_the_text_and_the_reply_has_the_last_word() -> None:
    shown, _ = _shown(_said("It is"), _said("Perhaps", "m2"), _done("It is noon."), live=False)

    assert shown.splitlines()[:5] == ["Answer", "It is", "Answer, anew", "Perhaps", "Answer"]
    assert shown.splitlines()[5] == "It is noon."


def test_a_warning_amid_the_answer_gets_a_line_of_its_own() -> None:
    warning = {"type": "warning", "code": "llm_timeout", "message": "slow", "task_id": None}

    shown, _ = _shown(_said("It is "), warning, _said("noon."), _done("It is noon."), live=False)

    assert shown.splitlines()[:5] == ["Answer", "It is ", "Warning: slow", "Answer, continued", "noon."]


def test_a_refused_answer_is_quoted_in_full() -> None:
    message = f"local:small answered with an invalid document. Expected: {'one object, ' * 12}. It wrote: {'x' * 300}."
    warning = {"type": "warning", "code": "llm_invalid_response", "message": message, "task_id": "t1"}

    shown, _ = _shown(warning)

    assert f"Warning in t1: {message}" in shown


def test_the_end_names_sources_and_what_was_not_answered() -> None:
    failed = _result("t2", "mcp_agent_disk", "failed", "the server is away")
    start = {"type": "tool_start", **_CALL}

    shown, display = _shown(_PLAN, start, _result("t1", "mcp_agent_time"), failed, _done("Noon."))

    assert "Sources\n  [1] mcp_agent_time: time.now\n" in shown
    assert "Not answered\n  how full it is: the server is away\n" in shown
    assert display.approved_agents == {"mcp_agent_time"}
    assert display.status == "succeeded"


@pytest.mark.parametrize(
    ("reply", "shown_below"),
    [
        ("Noon.\n\nNot answered: how full it is (the server is away)", False),
        ("Noon.\n\nNot answered:\n- how full it is (the server is away)", False),
        ("Noon.\n\nNot answered: something else (nobody can)", True),
        ("I can't tell how full it is.", True),
        ("the server\nis away, as it was before", False),
    ],
)
def test_what_the_reply_says_was_not_answered_isnt_said_again(reply: str, shown_below: bool) -> None:
    failed = _result("t2", "mcp_agent_disk", "failed", "the server is away")

    shown, _ = _shown(_PLAN, _result("t1", "mcp_agent_time"), failed, _done(reply))

    assert ("Not answered\n  how full it is: the server is away\n" in shown) == shown_below


def test_what_came_before_isnt_shown_but_numbers_the_sources() -> None:
    call = {"type": "tool_start", **_CALL}
    ended = [_result("t2", "mcp_agent_disk"), _result("t1", "mcp_agent_time")]

    shown, _ = _shown(_PLAN, call, *ended, _said("It is "), _said("noon [1]."), _done("It is noon [1]."), after=5)

    assert shown.splitlines()[:5] == [
        "Answer, continued",
        "noon [1].",
        "Sources",
        "  [1] mcp_agent_time: time.now",
        "  [2] mcp_agent_disk",
    ]


def test_a_task_given_to_another_agent_forgets_the_first_ones_calls() -> None:
    again: dict[str, Any] = {
        "id": "t1",
        "agent": "mcp_agent_other",
        "task": "the time",
        "depends_on": [],
        "status": "pending",
    }
    second: dict[str, Any] = {**_PLAN, "version": 2, "tasks": [again]}

    shown, _ = _shown(_PLAN, {"type": "tool_start", **_CALL}, second, _result("t1", "mcp_agent_other"), _done("Noon."))

    assert "[1] mcp_agent_other\n" in shown


def test_a_pipe_gets_no_colours_and_nobody_gets_the_controls_of_a_server() -> None:
    event = _said("\x1b[31mred\x07\ttab")

    piped, _ = _shown(event)
    coloured, _ = _shown(_done("x", "failed"), terminal=True)
    steered, _ = _shown(event, terminal=True)

    assert piped == "Answer\n�[31mred�\ttab"
    assert "\x1b[31m" in coloured
    assert "\x1b[31mred" not in steered
    assert "\x07" not in steered


def test_markup_in_texts_is_text() -> None:
    shown, _ = _shown(_said("[bold]not bold[/bold] [1]"))

    assert "[bold]not bold[/bold] [1]" in shown


def test_events_of_a_newer_version_are_passed_over() -> None:
    assert _shown({"type": "confetti", "colour": "gold"})[0] == ""


@pytest.mark.parametrize(
    ("kind", "more", "how"),
    [
        ("approval_required", {"call": _CALL}, "--id i1` approves it"),
        ("clarification", {}, '--id i1 --payload \'{"answer": "…"}\'` answers'),
        ("budget_required", {}, "--id i1 --payload '{\"tokens\": 10000}'` gives more"),
        ("in_doubt", {"call": _CALL}, '--id i1 --payload \'{"resolution": "done"}\'` decides'),
    ],
)
def test_what_is_waited_for_says_how_to_answer(kind: str, more: dict[str, Any], how: str) -> None:
    schema = {"properties": {"answer": {"examples": ["Lima"]}}} if kind == "clarification" else {}
    asked = {"id": "i1", "reason": "why", "message": "what?", "responseSchema": schema}
    started = {"type": "run_started", "run_id": "r1", "thread_id": "t", "epoch": 1}

    shown, _ = _shown(started, {"type": kind, **asked, "expiresAt": "2026-11-20T11:12:01+00:00", **more})

    assert "Waits: what?\n" in shown
    assert f"`starling run approve r1 {how}" in shown
    assert ('time.now {"zone":"America/Lima"}' in shown) == bool(more)
    assert ('Maybe: "Lima"' in shown) == (kind == "clarification")


def test_what_a_team_does_is_told_with_its_path_and_is_no_source() -> None:
    plan = _PLAN | {"path": "t1", "tasks": [{**_PLAN["tasks"][0], "agent": "watcher"}]}
    call = _CALL | {"path": "t1/t1", "call_id": "t1/t1.0.0"}
    answer = {"type": "tool_result", "call_id": "t1/t1.0.0", "name": "time.now", "status": "succeeded", "result": "12"}
    ended = _result("t1", "watcher") | {"path": "t1/t1"}
    warning = {"type": "warning", "code": "model", "message": "slow", "path": "t1", "task_id": None}

    shown, display = _shown(
        _PLAN, plan, {"type": "tool_start"} | call, answer, warning, ended, _result("t1", "machines"), _done("Noon."),
        live=False,
    )  # fmt: skip

    lines = shown.splitlines()
    assert "Plan of t1" in lines
    assert 't1/t1   calls time.now(zone="America/Lima")' in lines
    assert "t1/t1   time.now answered: 12" in lines
    assert "Warning in t1: slow" in lines
    assert lines[lines.index("Sources") + 1].startswith("  [1] mcp_agent_time")
    assert len(display.approved_agents) == 1


def test_build_is_shown_with_the_calls_of_each_case_below_it_and_no_line_is_wider_than_80_columns() -> None:
    build = [DESIGN, SOUND, *trial("t1.case-one"), PASSED, *trial("t1.case-two", failed=True), FAILED, STORED]

    shown, _ = _shown(PLAN, START, *build, live=False)

    lines = shown.splitlines()
    assert lines[2:4] == [
        "t1 → architect works",
        "Design of machine_watch, attempt 2: Watches the disk and the memory of this",
    ]
    begun = lines.index("Case one")
    assert lines[begun - 1] == "Checks: sound"
    assert lines[begun + 1].startswith('  ✓ system_health.disk(path="/"): 90 % 90 %')
    assert lines[begun + 2 : begun + 5] == [
        '  ✓ files.write(path="/"): [fixture] 90 %',
        "Case one passed; calls: 2 live, 1 simulated",
        "Case two",
    ]
    assert lines[begun + 7 : begun + 11] == [
        "  ✗ disk: The disk is away.",
        "Case two failed; calls: none",
        "  ✗ sum: The answer has no sum.",
        "machine_watch@1 is active from epoch 4 on.",
    ]
    assert max(map(len, lines)) <= 80


def _progress(done: float, total: float | None = 50, message: str = "") -> dict[str, Any]:
    return {"type": "tool_progress", **_CALL, "progress": done, "total": total, "message": message}


def _log(level: str) -> dict[str, Any]:
    return {"type": "tool_log", **_CALL, "level": level, "logger": "db", "message": "slow\ntoday\x1b[2J"}


@pytest.mark.parametrize(
    ("total", "lines"),
    [pytest.param(50, 11, id="of a known total"), pytest.param(None, 6, id="of an unknown total")],
)
def test_progress_of_a_call_is_a_line_for_each_tenth(total: float | None, lines: int) -> None:
    shown, _ = _shown(*(_progress(done, total) for done in range(51)))

    assert len(shown.splitlines()) == lines


def test_progress_that_arrives_during_the_answer_does_not_break_it() -> None:
    shown, _ = _shown(_said("It is "), _progress(1), _said("noon."))

    assert "It is noon." in shown


@pytest.mark.parametrize("level", ["info", "warning"])
def test_log_of_a_server_is_one_printable_line(level: str) -> None:
    shown, _ = _shown(_log(level))

    assert shown == f"t1   time.now logs {level}, db: slow today\N{REPLACEMENT CHARACTER}[2J\n"
