"""Calls in the ledger: their keys, and whether they have left."""

from dataclasses import replace

import pytest

from brain.durability.ledger import Ledger, call_key
from starling.core.clock import SystemClock
from starling.core.tool_calls import CallState, Effect, Observation
from starling.core.tools import Attempt, CallFinding, ToolCall, ToolDefinition, ToolOutcome
from starling.infra.postgres.runs.ledger import LedgerRow
from tests.support.in_memory_run import make_execution

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


@pytest.mark.parametrize(
    ("count", "is_equal"), [(2.0, True), (2.5, False), ("2", False)], ids=["float", "other number", "text"]
)
async def test_calls_whose_arguments_are_the_same_json_numbers_are_equal(count: float | str, *, is_equal: bool) -> None:
    ledger = make_execution().context.ledger
    first = ledger.with_keys(CALL)
    again = replace(CALL, arguments={"item": "tea", "count": count}, position=1, attempt=Attempt(2, is_later=True))
    ledger.intend([first, again := ledger.with_keys(again)])
    await ledger.leave(first)
    await ledger.settle(first, ToolOutcome(Observation.COMPLETED, "Ordered."), find=not_found)
    ledger.attempts.reject("t1", 1, ["No."])

    outcome = ledger.reuse(again, "[Done before.]")

    assert (outcome is not None) == is_equal


async def not_found() -> None:
    """What no tool can answer."""


async def test_call_that_was_found_not_done_counts_as_one_that_has_not_left() -> None:
    ledger = make_execution().context.ledger
    call = ledger.with_keys(CALL)

    async def not_done() -> CallFinding:
        return CallFinding(Observation.FOUND_NOT_DONE, "", "shop.find_order")

    ledger.intend([call])
    await ledger.leave(call)
    left = ledger.has_left(call)
    outcome = await ledger.dispatch(call, not_done)

    assert (left, outcome, ledger.has_left(call)) == (True, None, False)


def test_idempotent_calls_of_a_fork_have_the_keys_of_the_original_in_each_attempt() -> None:
    run = make_execution()
    sent = [
        LedgerRow(key, "t1", 0, index, TOOL.full_name, Effect.IDEMPOTENT, CALL.arguments, CallState.SUCCEEDED)
        for index, key in enumerate(("first", "second"))
    ]
    ledger = Ledger(run.sink, run.context.interrupts, SystemClock(), 60.0, originals=sent)

    def key_of(path: str, attempt: int, index: int) -> str:
        place = {"path": path, "position": attempt, "index": index, "attempt": Attempt(attempt)}
        call = ledger.with_keys(replace(CALL, tool=replace(TOOL, effect=Effect.IDEMPOTENT), **place))
        ledger.intend([call])
        return call.idempotency_key

    keys = [[key_of("t1", attempt, index) for index in range(3)] for attempt in (1, 2)]
    of_another_task = key_of("t2", 1, 0)

    assert [attempt[:2] for attempt in keys] == [["first", "second"]] * 2
    assert keys[0][2] == keys[1][2]
    assert len({"first", "second", keys[0][2], of_another_task}) == 4
