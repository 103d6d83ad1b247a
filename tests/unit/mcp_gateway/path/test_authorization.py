"""The grant, looked at where a call leaves."""

from dataclasses import dataclass, field

import pytest

from mcp_gateway.path.authorization import Authorization
from starling.core.clock import Deadline, SystemClock
from starling.core.principal import Grant
from starling.core.tool_calls import Effect, Observation
from starling.core.tools import CallRecord, ToolCall, ToolDefinition, ToolOutcome


@dataclass
class Inner:
    """The end of a path that does nothing but remember."""

    reached: list[str] = field(default_factory=list[str])

    async def __call__(self, call: ToolCall, deadline: Deadline, record: CallRecord | None) -> ToolOutcome:
        self.reached.append(call.tool.full_name)
        return ToolOutcome(Observation.COMPLETED, "done")


@pytest.mark.parametrize(
    ("grant", "reached"),
    [
        (None, True),
        (Grant(servers=frozenset({"time"})), True),
        (Grant(tools=frozenset({"time.now"})), True),
        (Grant(), False),
        (Grant(servers=frozenset({"times", "tim"})), False),
        (Grant(servers=frozenset({"git"}), tools=frozenset({"time.zones"})), False),
    ],
)
async def test_only_what_is_granted_is_reached(grant: Grant | None, reached: bool) -> None:
    inner = Inner()
    tool = ToolDefinition("time", "now", "", {"type": "object"}, None, Effect.READ, "hash")

    outcome = await Authorization(inner)(ToolCall("1", "run", "t1", tool, {}, grant), Deadline(SystemClock(), 1), None)

    assert (inner.reached == ["time.now"]) is reached
    assert outcome.code == ("" if reached else "not_allowed")
