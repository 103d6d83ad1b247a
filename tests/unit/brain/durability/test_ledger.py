"""The key of a call: the same in each life of its run, and no other call's."""

from dataclasses import replace

import pytest

from brain.durability.ledger import call_key
from starling.core.tool_calls import Effect
from starling.core.tools import ToolCall, ToolDefinition

TOOL = ToolDefinition("shop", "order", "", {"type": "object"}, None, Effect.UNSAFE, "h")
CALL = ToolCall("t1.0.0", "run", "t1", TOOL, {"item": "tea", "count": 2})


def test_the_order_of_arguments_changes_no_key() -> None:
    assert call_key(replace(CALL, arguments={"count": 2, "item": "tea"})) == call_key(CALL)


@pytest.mark.parametrize(
    "other",
    [
        replace(CALL, run_id="another"),
        replace(CALL, path="t2"),
        replace(CALL, position=1),
        replace(CALL, index=1),
        replace(CALL, tool=replace(TOOL, name="cancel")),
        replace(CALL, arguments={"item": "tea", "count": "2"}),
        replace(CALL, arguments={"item": "tea", "count": True}),
        replace(CALL, arguments={"item": "tea", "count": 2.5}),
    ],
    ids=["run", "path", "position", "index", "tool", "text", "truth", "number"],
)
def test_another_call_has_another_key(other: ToolCall) -> None:
    assert call_key(other) != call_key(CALL)
