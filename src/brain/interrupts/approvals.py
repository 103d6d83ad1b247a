"""Approval of single tool calls by a person."""

from typing import Final

from brain.interrupts.requests import InterruptOutcome, InterruptRequest, Interrupts
from starling.core.events.run_events import ExactCall
from starling.core.json import JsonObject
from starling.core.tool_calls import Observation
from starling.core.tools import ToolCall, ToolOutcome

NOT_APPROVED: Final = "not_approved"
_NOTE_CHARS = 2_000
_SCHEMA: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean", "description": "Whether the call may be made."},
        "note": {"type": "string", "maxLength": _NOTE_CHARS, "description": "Why; the agent reads it."},
    },
    "required": ["approved"],
    "additionalProperties": False,
}


def approve(interrupts: Interrupts, call: ToolCall, reason: str) -> ToolOutcome | None:
    """Return None if a person approved exactly this call, else the outcome that says why it is not made.

    A call that was not approved once, refused or not answered, is not asked for again in the same run. Raises
    SuspendedError while there is no answer.
    """
    request = _request(call, reason)
    refusal = None if interrupts.was_asked(request.key) else interrupts.refusal_of(request)
    outcome = refusal or interrupts.answer_to(request)
    if outcome.state == "resolved" and outcome.payload["approved"]:
        return None
    return ToolOutcome(
        Observation.NOT_SENT, f"{_refusal_text(outcome, call)} The tool was not called.", code=NOT_APPROVED
    )


def exact_call(call: ToolCall) -> ExactCall:
    """Return a call as events and people see it: the full name and all arguments."""
    return ExactCall(
        name=call.shown_name,
        args=dict(call.arguments),
        task_id=call.path.rpartition("/")[2].partition(".")[0],
        path=call.path,
        call_id=call.id,
    )


def _request(call: ToolCall, reason: str) -> InterruptRequest:
    agent = call.agent or "An agent"
    return InterruptRequest(
        kind="approval",
        key=f"approval/{call.key}",
        path=call.path,
        reason=reason,
        message=f"{agent} wants to call {call.shown_name} with exactly these arguments.",
        response_schema=_SCHEMA,
        call=exact_call(call),
    )


def _refusal_text(outcome: InterruptOutcome, call: ToolCall) -> str:
    name = call.shown_name
    match outcome.state:
        case "resolved":
            note = str(outcome.payload.get("note", "")).strip()
            because = f": {note}" if note else ""
            return f"The call of {name} was refused{because}{'' if note.endswith(('.', '!', '?')) else '.'}"
        case "cancelled":
            return f"The call of {name} was not approved: the question was withdrawn."
        case "expired":
            return f"The call of {name} was not approved: there was no answer in time."
