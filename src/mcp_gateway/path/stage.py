"""What every stage of a call's path has in common: its signature, and the outcomes that stages return."""

from typing import Final, Protocol

from starling.core.clock import Deadline
from starling.core.tool_calls import CallState, Observation, state_after_answer
from starling.core.tools import CallRecord, ToolCall, ToolOutcome

_NOTES: Final = {
    CallState.IN_DOUBT: " Whether it changed anything is unknown.",
    CallState.UNUSABLE: " The call was done or may have been done; its result can't be used.",
}


class Stage(Protocol):
    """One stage of a call's path: returns the outcome itself, or that of the stage that it wraps."""

    async def __call__(self, call: ToolCall, deadline: Deadline, record: CallRecord | None) -> ToolOutcome:
        """Return the outcome; failures of servers and tools are outcomes, never exceptions.

        `record` belongs to the run that makes the call, None where no run does.
        """
        ...


def not_sent(code: str, text: str) -> ToolOutcome:
    """Return the outcome of a call that was stopped before it left."""
    return ToolOutcome(Observation.NOT_SENT, f"{text} The tool was not called.", code=code)


def quarantined(call: ToolCall, reason: str) -> ToolOutcome:
    """Return the outcome of a call whose tool isn't offered as it was approved."""
    return not_sent("quarantined", f"{call.tool.full_name} isn't offered as it was approved. {reason}")


def failed(call: ToolCall, observation: Observation, code: str, text: str) -> ToolOutcome:
    """Return the outcome of a call that was made and has no usable result; its text states what is uncertain."""
    note = _NOTES.get(state_after_answer(observation, call.tool.effect), "")
    return ToolOutcome(observation, f"{text}{note}", code=code)
