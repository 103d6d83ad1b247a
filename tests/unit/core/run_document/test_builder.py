"""The document of a run is the same for live events and for stored rows."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from starling.core.run_document.builder import RunDocumentBuilder
from starling.core.run_document.document import LeftOutTask
from starling.core.run_document.rows import AnswerRow, CallRow, EventRow, StepRow

_BEGIN = datetime(2026, 11, 20, 11, tzinfo=UTC)
_TASK: dict[str, Any] = {
    "id": "t1",
    "agent": "mcp_agent_shop",
    "task": "Order tea",
    "depends_on": [],
    "status": "pending",
}
_USAGE = {"tokens": 30, "input_tokens": 20, "output_tokens": 10, "model_calls": 3, "tool_calls": 2}
STORY: list[tuple[str, dict[str, Any]]] = [
    ("run_started", {"run_id": "r", "thread_id": "t", "trace_id": "tr", "correlation_id": "c", "epoch": 3}),
    ("plan", {"version": 1, "plan": ["Order tea"], "tasks": [_TASK], "thought_process": "One task.", "path": ""}),
    ("task_start", {"task_id": "t1", "agent": "mcp_agent_shop", "path": "t1", "attempt": 1}),
    ("tool_start", {"name": "shop.order", "args": {}, "task_id": "t1", "path": "t1", "call_id": "t1.0.0"}),
    ("tool_result", {"name": "shop.order", "result": "no item", "call_id": "t1.0.0", "status": "failed"}),
    ("reflection", {"task_id": "t1", "attempt": 1, "status": "REJECTED", "reasons": ["Nothing."], "path": "t1"}),
    ("task_start", {"task_id": "t1", "agent": "mcp_agent_shop", "path": "t1", "attempt": 2}),
    ("tool_start", {"name": "shop.order", "args": {"item": "tea"}, "task_id": "t1", "path": "t1", "call_id": "t1.1.0"}),
    ("tool_result", {"name": "shop.order", "result": "4711", "call_id": "t1.1.0", "status": "succeeded"}),
    ("reflection", {"task_id": "t1", "attempt": 2, "status": "FIXED", "reasons": ["Shorter."], "path": "t1"}),
    (
        "task_result",
        {
            "task_id": "t1",
            "agent": "mcp_agent_shop",
            "path": "t1",
            "attempt": 2,
            "status": "approved",
            "summary": "4711",
            "artifacts": [],
            "skills": [],
        },
    ),
    ("done", {"usage": _USAGE, "status": "succeeded", "reply": "Ordered."}),
]


def builder_of(story: list[tuple[str, dict[str, Any]]]) -> RunDocumentBuilder:
    builder = RunDocumentBuilder()
    for seq, (kind, data) in enumerate(story, start=1):
        builder.take(EventRow(seq, kind, {"type": kind, **data}), _BEGIN + timedelta(seconds=seq))
    return builder


def test_events_alone_give_tasks_attempts_calls_and_the_end() -> None:
    document = builder_of(STORY).document()

    [task] = document.tasks
    assert (task.path, task.status, task.summary, task.seq) == ("t1", "approved", "4711", 11)
    assert [[call.result for call in attempt.calls] for attempt in task.attempts] == [["no item"], ["4711"]]
    assert [attempt.verdict and attempt.verdict.status for attempt in task.attempts] == ["REJECTED", "FIXED"]
    assert (document.status, document.events, (document.result or {})["reply"]) == ("succeeded", 12, "Ordered.")


def test_document_of_a_running_run_has_what_happened_so_far() -> None:
    document = builder_of(STORY[:4]).document()

    assert document.status == "running"
    assert [task.status for task in document.tasks] == ["running"]


def test_model_calls_belong_to_the_attempt_of_the_call_that_follows_them() -> None:
    builder = builder_of(STORY)
    asked = ["supervisor/1", "t1", ("t1.0.0", "not_found"), "t1/review", "t1", ("t1.1.0", None), "t1/review", "qa/1"]
    for number, step in enumerate(asked, start=1):
        metadata: dict[str, Any] = {"path": step, "model": "m", "model_role": "worker", "input_tokens": 2}
        if not isinstance(step, str):
            metadata = {"path": "t1", "call_id": step[0], "error": step[1], "duration_ms": 1.5}
        builder.take(StepRow(number, "llm_call" if isinstance(step, str) else "tool_call", metadata), _BEGIN)

    document = builder.document()

    [task] = document.tasks
    assert [call.path for call in document.decisions] == ["supervisor/1", "qa/1"]
    assert [[call.step for call in attempt.model_calls] for attempt in task.attempts] == [[2, 4], [5, 7]]
    assert [call.code for call in task.calls] == ["not_found", ""]


def test_ledger_and_journal_complete_calls_and_verdicts() -> None:
    builder = builder_of(STORY)
    settled = _BEGIN + timedelta(milliseconds=40)
    builder.take(CallRow("t1.1.0", "unsafe", "succeeded", "", _BEGIN, settled, None), _BEGIN)
    builder.take(AnswerRow("t1/review", 4, '{"status": "FIXED", "refined_output": "Order 4711"}'), _BEGIN)

    [task] = builder.document().tasks

    last = task.attempts[-1]
    assert [(call.effect, call.state, call.ms) for call in last.calls] == [("unsafe", "succeeded", 40)]
    assert last.verdict is not None
    assert last.verdict.refined == "Order 4711"


def test_document_without_the_run_is_refused() -> None:
    with pytest.raises(ValueError, match="run_started"):
        RunDocumentBuilder().document()


def test_task_that_could_not_be_planned_is_known_from_the_step_of_its_plan() -> None:
    builder = builder_of(STORY)
    left_out = {"path": "t2", "agent": "packer", "task": "Pack it", "code": "unknown_agent"}
    builder.take(StepRow(1, "plan", {"version": 1, "left_out": [left_out]}), _BEGIN)

    assert builder.document().left_out == (LeftOutTask("t2", "packer", "Pack it", "unknown_agent", 1),)


def test_last_plan_of_a_run_has_the_states_of_its_tasks_now_and_earlier_ones_those_of_then() -> None:
    again = ("plan", {**STORY[1][1], "version": 2})

    document = builder_of([*STORY[:2], again, *STORY[2:]]).document()

    assert [plan.tasks[0]["status"] for plan in document.plans] == ["pending", "approved"]
