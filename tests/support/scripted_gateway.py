"""A tool gateway that answers from a table, for unit tests of agents."""

from collections.abc import Callable
from dataclasses import dataclass, field

from mcp_gateway.path.trials import Simulation, TrialCalls
from mcp_gateway.registration.known_servers import Directory
from mcp_gateway.schemas.validation import Validators
from starling.core.clock import Deadline
from starling.core.tool_calls import Effect, Observation
from starling.core.tools import CallRecord, ServerListing, ToolCall, ToolDefinition, ToolGateway, ToolOutcome


def tool(name: str, effect: Effect = Effect.READ) -> ToolDefinition:
    """A tool of the server `bench`."""
    return ToolDefinition("bench", name, f"{name} things.", {"type": "object"}, None, effect, f"hash of {name}")


@dataclass(slots=True)
class ScriptedGateway(ToolGateway):
    """Answers each call with what `answer` makes of it, and remembers the calls that left, by the run's ledger."""

    answer: Callable[[ToolCall], ToolOutcome] = lambda call: ToolOutcome(
        Observation.COMPLETED, f"{call.tool.name} is done"
    )
    calls: list[ToolCall] = field(default_factory=list[ToolCall])
    warmed: list[str] = field(default_factory=list[str])

    async def call(self, call: ToolCall, deadline: Deadline, record: CallRecord | None = None) -> ToolOutcome:
        del deadline
        if record is None or call.tool.effect is Effect.READ:
            self.calls.append(call)
            return self.answer(call)
        if (outcome := await record.dispatch(call, _no_tool)) is not None:
            return outcome
        await record.leave(call)
        self.calls.append(call)
        return await record.settle(call, self.answer(call), _no_tool)

    def warm(self, server: str) -> None:
        self.warmed.append(server)

    def listing(self, server: str) -> ServerListing | None:
        del server
        return None


@dataclass(slots=True)
class TrialGateway(ScriptedGateway):
    """A scripted gateway behind the recorder of the gateway's path, which answers what a trial must not change."""

    async def call(self, call: ToolCall, deadline: Deadline, record: CallRecord | None = None) -> ToolOutcome:
        recorder = TrialCalls(Directory(), Simulation(Validators()), super(TrialGateway, self).call)
        return await recorder(call, deadline, record)


async def _no_tool() -> None:
    """No tool of the server can tell what became of a call."""
