"""Approvals of calls that were asked for before."""

from typing import Any

import pytest

from brain.interrupts.requests import Interrupts, approve
from starling.core.clock import SystemClock
from starling.core.errors import SuspendedError
from starling.core.events.run_events import ApprovalRequired
from starling.core.tool_calls import Effect
from starling.core.tools import ToolCall
from tests.support.in_memory_run import MemorySink, make_run, stored_interrupt
from tests.support.scripted_gateway import tool

ASKED = {"id": "01a1f8ac-cbf4-7cdd-97b7-5ad5f772744e", "reason": "policy", "message": "May I?"}
AGAIN = ToolCall("t1.1.0", "run", "t1", tool("order", Effect.UNSAFE), {"what": "tea"})


def interrupts(sink: MemorySink, arguments: dict[str, Any], **answer: Any) -> Interrupts:
    """Return the interrupts of a run that asked for a call of the tool once."""
    call = {"name": AGAIN.shown_name, "args": arguments, "task_id": "t1", "path": "t1", "call_id": "t1.0.0"}
    return Interrupts(
        sink, SystemClock(), 60, [stored_interrupt(ASKED, "approval", "approval/other", call=call, **answer)]
    )


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"payload": {"approved": False, "note": "too much"}}, "was refused: too much."),
        ({"state": "cancelled"}, "the question was withdrawn"),
        ({"state": "expired"}, "there was no answer in time"),
    ],
)
def test_call_that_was_not_approved_is_not_asked_for_again(answer: dict[str, Any], reason: str) -> None:
    sink = MemorySink(make_run())

    outcome = approve(interrupts(sink, {"what": "tea"}, **answer), AGAIN, "policy")

    assert outcome is not None
    assert (outcome.code, sink.events) == ("not_approved", [])
    assert reason in outcome.text


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ({"what": "tea"}, {"payload": {"approved": True}}),
        ({"what": "coffee"}, {"payload": {"approved": False}}),
        ({"what": "tea"}, {"state": "open"}),
    ],
    ids=["approved before", "refused with other arguments", "not answered yet"],
)
def test_call_is_asked_for_that_nobody_has_refused(arguments: dict[str, Any], answer: dict[str, Any]) -> None:
    sink = MemorySink(make_run())

    with pytest.raises(SuspendedError):
        approve(interrupts(sink, arguments, **answer), AGAIN, "policy")

    assert [type(event) for event in sink.events] == [ApprovalRequired]
