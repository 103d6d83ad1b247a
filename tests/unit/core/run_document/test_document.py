"""A document is the same after it was JSON."""

import json
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

import orjson

from starling.app.cli.platform.late_imports import run_document
from starling.core.run_document.document import (
    Feedback,
    Pruned,
    RecalledSkill,
    RunAhead,
    RunFailure,
    RunInterrupt,
)
from starling.core.run_document.rows import AnswerRow, CallRow, StepRow
from starling.core.run_status import RunStatus
from tests.unit.core.run_document.test_builder import STORY, builder_of

_AT = datetime(2026, 11, 20, 11, tzinfo=UTC)


def test_document_with_every_part_round_trips() -> None:
    builder = builder_of(STORY)
    builder.take(StepRow(1, "llm_call", {"path": "t1", "model": "m", "prompt": {"name": "worker"}}), _AT)
    builder.take(CallRow("t1.1.0", "unsafe", "succeeded", "", _AT, _AT, "ann"), _AT)
    builder.take(AnswerRow("t1/review", 4, '{"refined_output": "Order 4711"}'), _AT)
    builder.take(Feedback("local", 0.5, "Late.", _AT, _AT), _AT)
    builder.take(RunInterrupt("i", "r", "approval", "t1", "why", "May it?", {}, {"name": "x"}, "open", _AT, _AT), _AT)
    document = builder.document()
    document = replace(
        document,
        tasks=tuple(replace(task, skills=(RecalledSkill("s", "x", followed=True),)) for task in document.tasks),
        why=RunFailure("failed", "It failed."),
        behind=RunAhead("r0", RunStatus.QUEUED),
        pruned=(Pruned("steps", "gone"),),
    )

    written = orjson.dumps(document)

    assert orjson.dumps(run_document(json.loads(written))) == written


def test_parts_that_are_missing_are_empty_and_unknown_fields_are_left_out() -> None:
    whole: dict[str, Any] = json.loads(orjson.dumps(asdict(builder_of(STORY).document())))
    given: dict[str, Any] = {name: value for name, value in whole.items() if name not in ("tasks", "plans")}
    given["prompts"] = []

    found = run_document(given)

    assert (found.tasks, found.run_id) == ((), "r")
