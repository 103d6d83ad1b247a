"""What every part of the path is."""

from typing import Final, Protocol

from starling.core.clock import Deadline
from starling.core.tool_calls import Effect
from starling.core.tools import ToolCall, ToolOutcome

NOTHING_DONE: Final = "The tool was not called."


class Step(Protocol):
    """Takes a call and says what came of it, by itself or by asking the step that it wraps."""

    async def __call__(self, call: ToolCall, deadline: Deadline) -> ToolOutcome:
        """Return the outcome. Failures of servers and tools are outcomes, never exceptions."""
        ...


def failed(code: str, text: str) -> ToolOutcome:
    """Return the outcome of a call that failed."""
    return ToolOutcome("failed", text, code=code)


def cut_off(call: ToolCall, code: str, text: str) -> ToolOutcome:
    """Return the outcome of a call that may have reached its tool and brought no answer."""
    if call.tool.effect is Effect.READ:
        return failed(code, text)
    return ToolOutcome("failed", f"{text} Whether it changed anything is unknown.", code=code, unknown=True)
