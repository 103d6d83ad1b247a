"""A tool gateway that answers from a table, for unit tests of agents."""

from collections.abc import Callable
from dataclasses import dataclass, field

from starling.core.clock import Deadline
from starling.core.tool_calls import Effect, Observation
from starling.core.tools import CallRecord, ServerListing, ToolCall, ToolDefinition, ToolGateway, ToolOutcome


def tool(name: str, effect: Effect = Effect.READ) -> ToolDefinition:
    """A tool of the server `bench`."""
    return ToolDefinition("bench", name, f"{name} things.", {"type": "object"}, None, effect, f"hash of {name}")


@dataclass(slots=True)
class ScriptedGateway(ToolGateway):
    """Answers each call with what `answer` makes of it, and remembers the calls."""

    answer: Callable[[ToolCall], ToolOutcome] = lambda call: ToolOutcome(
        Observation.COMPLETED, f"{call.tool.name} is done"
    )
    calls: list[ToolCall] = field(default_factory=list[ToolCall])

    async def call(self, call: ToolCall, deadline: Deadline, record: CallRecord | None = None) -> ToolOutcome:
        del deadline, record
        self.calls.append(call)
        return self.answer(call)

    def warm(self, server: str) -> None:
        del server

    def listing(self, server: str) -> ServerListing | None:
        del server
        return None
