"""A run as a tree of lines."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.cells import cell_len

from starling.app.cli.terminal.run_tree import RunTree, TreeForm, stored_lines
from starling.core.run_document.builder import RunDocumentBuilder
from starling.core.run_document.document import (
    Fact,
    Feedback,
    InterruptState,
    PlanChange,
    RecalledSkill,
    RunAhead,
    RunDocument,
    RunInterrupt,
)
from starling.core.run_document.rows import CallRow, EventRow, StepRow
from starling.core.run_status import RunStatus
from tests.support.build_events import DESIGN, DONE, FAILED, FAULTY, PASSED, STORED, Event, started, trial
from tests.support.build_events import PLAN as BUILD_PLAN
from tests.support.build_events import START as BUILD_START

BEGIN = datetime(2026, 11, 20, 11, tzinfo=UTC)
FORM = TreeForm(width=80)
PLAN: Event = {
    "type": "plan",
    "version": 1,
    "plan": [],
    "thought_process": "Two tasks.",
    "tasks": [
        {"id": "t1", "agent": "clock", "task": "the time in Lima", "depends_on": [], "status": "pending"},
        {"id": "t2", "agent": "disk", "task": "how full it is", "depends_on": ["t1"], "status": "pending"},
    ],
}
START: Event = {"type": "task_start", "task_id": "t1", "path": "t1", "agent": "clock", "attempt": 1}
CALL: Event = {
    "type": "tool_start",
    "task_id": "t1",
    "path": "t1",
    "name": "time.now",
    "args": {"zone": "UTC"},
    "call_id": "t1.0.0",
}
ANSWER: Event = {"type": "tool_result", "name": "time.now", "call_id": "t1.0.0", "status": "succeeded", "result": "12"}
REJECTED: Event = {"type": "reflection", "task_id": "t1", "attempt": 1, "status": "REJECTED", "reasons": ["wrong zone"]}
LOG: Event = {k: CALL[k] for k in ("task_id", "path", "name", "call_id")} | {
    "type": "tool_log",
    "level": "info",
    "logger": "",
    "message": "a row",
}


def ended(path: str, status: str = "approved", summary: str = "") -> Event:
    task = {"task_id": path.rpartition("/")[2], "path": path, "agent": "clock", "attempt": 1}
    return {"type": "task_result", **task, "status": status, "summary": summary, "artifacts": []}


def inside(event: Event, path: str) -> Event:
    """An event of the team's task t1, on a path inside the run's t1."""
    return event | {"path": path} | ({"call_id": f"{path}.0.0"} if "call_id" in event else {})


def document_of(*events: Event, rows: Iterable[Any] = ()) -> RunDocument:
    builder = RunDocumentBuilder()
    for seq, event in enumerate([started(), *events], start=1):
        builder.take(EventRow(seq, event["type"], event), BEGIN + timedelta(seconds=seq))
    for row in rows:
        builder.take(row, BEGIN)
    return builder.document()


def tree(*events: Event, form: TreeForm = FORM, rows: Iterable[Any] = ()) -> list[str]:
    return [text for text, _ in RunTree(document_of(*events, rows=rows), form).lines()]


def stored(document: RunDocument) -> list[str]:
    return [text for text, _ in stored_lines(document, FORM, "last")]


def test_tasks_and_calls_have_marks_of_their_states() -> None:
    assert tree(PLAN, START, CALL, ANSWER, ended("t1"), ended("t2", "failed", "the server is away")) == [
        "✓ t1 clock: the time in Lima",
        '    ✓ time.now(zone="UTC"): 12',
        "✗ t2 clock: how full it is",
        "    ✗ the server is away",
    ]


def test_what_a_service_allowed_a_run_is_shown() -> None:
    row = {"effects": ["read"], "seconds": 20.0, "tools": []}
    document = replace(document_of(PLAN), governance={"source": "service", "row": row})
    by_table = replace(document, governance={"source": "table", "row": row})

    assert "allowed    effects read · seconds 20 · tools none (by the service)" in stored(document)
    assert not [line for line in stored(by_table) if line.startswith("allowed")]


def test_what_works_and_what_has_not_begun_are_shown_in_another_way() -> None:
    lines = [*RunTree(document_of(PLAN, START, CALL), replace(FORM, live=True, frame="⠋")).lines()]

    assert lines == [
        ("⠋ t1 clock: the time in Lima", "cyan"),
        ('    ⠋ time.now(zone="UTC")', "cyan"),
        ("· t2 disk: how full it is", "dim"),
    ]


def test_task_that_a_later_plan_dropped_before_it_began_is_not_shown() -> None:
    assert tree(PLAN, PLAN | {"version": 2, "tasks": PLAN["tasks"][:1]}) == ["· t1 clock: the time in Lima"]


def test_verdicts_that_asked_for_more_are_shown_before_the_next_attempt() -> None:
    fixed = REJECTED | {"attempt": 2, "status": "FIXED", "reasons": ["shorter"]}

    assert tree(PLAN, START, REJECTED, START | {"attempt": 2}, fixed)[1:4] == [
        "    ✗ REJECTED: wrong zone",
        "    attempt 2",
        "    ✎ FIXED: shorter",
    ]


def test_tasks_of_a_team_are_below_the_task_that_it_works_on_in_all_its_attempts() -> None:
    plan = PLAN | {"path": "t1", "tasks": [PLAN["tasks"][0] | {"agent": "watcher", "task": "look"}]}
    first = [inside(event, "t1/t1") for event in (START, CALL, ANSWER, ended("t1"))]

    lines = tree(PLAN, START, plan, *first, plan | {"path": "t1:2"}, inside(START, "t1:2/t1"))

    assert lines == [
        "… t1 clock: the time in Lima  running",
        "    ✓ t1 clock: look",
        '        ✓ time.now(zone="UTC"): 12',
        "    … t1 clock: look  running",
        "· t2 disk: how full it is",
    ]


def test_build_shows_the_case_that_is_tried_and_the_outcomes_of_the_others() -> None:
    events = [BUILD_PLAN, BUILD_START, FAULTY, *trial("t1.case1"), PASSED, *list(trial("t1.case-two"))[:4]]

    lines = tree(*events, form=replace(FORM, live=True))

    assert lines == [
        "… t1 architect: a team",
        "    Checks: 1 finding",
        "      members[0].server: There is no server 'system_healt'. Did you mean",
        "        'system_health'? The servers are system_health and time.",
        "    Case one passed; calls: 2 live, 1 simulated",
        "    … Case two",
        "        … t1 disk: How full is it?",
        '            ✓ system_health.disk(path="/"): 90 % 90 % 90 % 90 % 90 % 90 % 90 %…',
    ]


def test_build_has_its_trials_with_details() -> None:
    events = [BUILD_PLAN, BUILD_START, DESIGN, *trial("t1.case1"), PASSED, *trial("t1.case2"), FAILED, STORED, DONE]

    lines = tree(*events, form=replace(FORM, details=True))

    assert [line for line in lines if "Case" in line] == [
        "    Case one passed; calls: 2 live, 1 simulated",
        "    Case two failed; calls: none",
        "    ✓ Case case1",
        "    ✗ Case case2",
    ]
    assert max(map(cell_len, lines)) <= 80


@pytest.mark.parametrize("width", [40, 80])
def test_lines_keep_to_the_width_and_have_no_control_characters(width: int) -> None:
    noisy = ANSWER | {"result": "\x1b[2J" + "最終的な答え " * 30}
    warning = {"type": "warning", "code": "c", "message": "word " * 60, "task_id": "t1"}

    lines = tree(PLAN, START, CALL, noisy, warning, form=TreeForm(width=width, now=BEGIN, details=True))

    assert max(map(cell_len, lines)) <= width
    assert "\x1b[2J" not in "".join(lines)


def test_warnings_are_at_their_task_and_else_below_the_tree() -> None:
    warning = {"type": "warning", "code": "c", "message": "slow", "task_id": "t1"}

    assert tree(PLAN, START, warning, warning | {"task_id": None}) == [
        "… t1 clock: the time in Lima  running",
        "    ! Warning: slow",
        "· t2 disk: how full it is",
        "! Warning: slow",
    ]


def test_live_call_shows_its_progress_until_it_is_answered_and_warnings_of_its_server() -> None:
    report = LOG | {"type": "tool_progress", "progress": 2, "total": 5, "message": "reading"}
    form = replace(FORM, live=True)

    assert tree(PLAN, START, CALL, report, form=form)[1] == '    … time.now(zone="UTC"): 2 of 5: reading'
    assert tree(PLAN, START, CALL, LOG, form=form)[1] == '    … time.now(zone="UTC"): info: a row'
    assert tree(PLAN, START, CALL, LOG | {"level": "warning"}, ANSWER, form=form)[1:3] == [
        '    ✓ time.now(zone="UTC"): 12',
        "        logs warning: a row",
    ]


def test_what_ended_before_the_tree_was_left_on_the_screen_is_not_drawn_again() -> None:
    events = [PLAN, START, CALL, ANSWER, ended("t1"), {**START, "path": "t2", "task_id": "t2"}]

    assert tree(*events, form=replace(FORM, live=True, after=6)) == ["… t2 clock: how full it is"]


def test_effect_of_a_call_is_shown_with_its_id_and_who_settled_it() -> None:
    row = CallRow("t1.0.0", "unsafe", "in_doubt", "timeout", BEGIN, BEGIN, "ann")

    lines = tree(PLAN, START, CALL, rows=[row], form=TreeForm(width=120))

    assert lines[1] == '    ✗ time.now(zone="UTC")  t1.0.0, unsafe, in_doubt, settled by ann, timeout'


def test_details_have_decisions_model_calls_tokens_and_times() -> None:
    def step(number: int, path: str, error: str = "") -> StepRow:
        used = {"model": "m", "model_role": "worker", "input_tokens": 1_000, "error": error}
        return StepRow(number, "llm_call", {"path": path, "duration_ms": 250, **used})

    rows = [step(1, "supervisor/1"), step(2, "t1", "llm_timeout"), step(3, "t1/review"), step(4, "qa/1")]
    events = [PLAN, START, CALL, ANSWER, REJECTED | {"status": "APPROVED"}, ended("t1"), DONE]

    lines = tree(*events, rows=rows, form=TreeForm(width=100, now=BEGIN, details=True))

    assert lines == [
        "∙ decision 1: Two tasks.  m (worker)  step 1  250 ms  1,000 tokens",
        "∙ final answer  m (worker)  step 4  250 ms  1,000 tokens",
        "✓ t1 clock: the time in Lima  4.0 s  2,000 tokens",
        "    ✗ m (worker): llm_timeout  step 2  250 ms  1,000 tokens",
        '    ✓ time.now(zone="UTC"): 12  t1.0.0  1.0 s',
        "    ∙ m (worker)  step 3  250 ms  1,000 tokens",
        "    ✓ APPROVED: wrong zone",
        "· t2 disk: how full it is",
    ]


def asked(state: InterruptState) -> RunInterrupt:
    call: Event = {"name": "time.now", "args": {}, "call_id": "t1.0.0"}
    return RunInterrupt(
        "i1",
        "r",
        "approval",
        "t1",
        "why",
        "May it?",
        {},
        call,
        state,
        BEGIN,
        BEGIN,
        BEGIN + timedelta(seconds=9),
        "ann",
    )


def test_waiting_run_shows_what_waits_and_how_to_answer() -> None:
    document = replace(document_of(PLAN, START, CALL), status=RunStatus.WAITING, interrupts=(asked("open"),))

    lines = stored(document)

    assert "? t1 clock: the time in Lima  waiting for approval" in lines
    assert '    ? time.now(zone="UTC")  waiting for approval' in lines
    assert lines[lines.index("Waits for") + 1] == "  approval i1: May it?"
    assert "`starling run approve last --id i1` approves it" in lines[-1]


def test_answered_question_is_shown_with_who_answered() -> None:
    document = replace(document_of(PLAN, START), interrupts=(asked("resolved"),))

    assert stored(document)[-1] == "✓ approval of t1: May it?  resolved by ann"


def test_stored_run_has_its_request_skills_logs_and_feedback() -> None:
    document = document_of(PLAN, START, CALL, LOG, ANSWER, ended("t1"), DONE)
    skill = RecalledSkill("01a1f8ac", "How full is {path}?", followed=False)
    tasks = [replace(document.tasks[0], skills=(skill,))]
    document = replace(
        document, input="Say\nit.", tasks=tasks, feedback=[Feedback("local", 0.5, "Late,\nbut right.", BEGIN, BEGIN)]
    )

    assert stored(document)[5:] == [
        "Request",
        "  Say it.",
        "Tasks",
        "✓ t1 clock: the time in Lima",
        '    ✓ time.now(zone="UTC"): 12',
        "        logs info: a row",
        "    skill 01a1f8ac not followed: How full is {path}?",
        "Feedback",
        "  0.5 by local: Late, but right.",
        "Answer",
        "It is built.",
        "Succeeded: 1 model call, 2 tool calls, 1 token; plan 1.0 s, done 7.0 s",
    ]


def test_stored_run_has_its_facts_and_the_changes_of_its_plan() -> None:
    document = document_of(PLAN, START, CALL, ANSWER, ended("t1"), DONE)
    facts = Fact("disk.free", 42, "t1.0.0"), Fact("state", "two\nlines", "t1.0.1"), Fact("ok", False, "t1.0.1")
    tasks = [replace(document.tasks[0], facts=facts)]
    plan = replace(document.plans[0], version=2, changes=(PlanChange("removed", "t2", "t1 failed: no disk"),))

    lines = stored(replace(document, tasks=tasks, plans=[plan]))

    first = lines.index("    fact disk.free: 42")
    assert lines[first + 1 : first + 3] == ["    fact state: two lines", "    fact ok: false"]
    assert lines[lines.index("Changes of the plan") + 1] == "  version 2: removed t2: t1 failed: no disk"


def test_queued_run_names_the_run_that_it_waits_for() -> None:
    document = replace(document_of(), status=RunStatus.QUEUED, behind=RunAhead("r0", RunStatus.WAITING))

    assert stored(document)[5].startswith("Behind r0, which is waiting: ")
