"""Equal calls of a principal: the first one's result, or a refusal; with the run's real ledger."""

from dataclasses import replace
from typing import Any

import pytest

from brain.durability.ledger import Ledger
from starling.core.tool_calls import CallState, Effect, Observation
from starling.core.tools import ToolCall
from starling.infra.postgres.runs.call_claims import EarlierCall
from starling.infra.postgres.runs.ledger import LedgerRow
from tests.support.in_memory_run import make_execution, make_run
from tests.support.scripted_path import ScriptedPath

DONE = EarlierCall(
    "other run", "t9.0.0", "done", {"status": "succeeded", "observation": "completed", "text": "ordered"}
)


def begun(path: ScriptedPath, effect: Effect | None = None, **fields: Any) -> tuple[ToolCall, Ledger]:
    """Return an intended call of `order`, and the ledger that has it."""
    ledger = make_execution().context.ledger
    call = ledger.with_keys(path.call("order", effect, **fields))
    ledger.intend([call])
    return call, ledger


async def test_call_gets_the_result_of_an_equal_one_and_a_row_of_its_own() -> None:
    path = ScriptedPath({"tools": {"order": {"dedup_ttl": 60}}})
    path.claims.earlier = DONE
    call, ledger = begun(path)

    outcome = await ledger.conclude(call, await path.made(call, ledger))

    assert (outcome.status, outcome.observation, path.called) == ("succeeded", Observation.REUSED, [])
    assert outcome.text.startswith("ordered\n[The result of call t9.0.0 of run other run")
    assert (ledger.state(call), ledger.outcome(call)) == (CallState.REUSED, outcome)


@pytest.mark.parametrize(("standing", "said"), [("open", "has not ended"), ("in_doubt", "unknown whether")])
async def test_call_is_refused_while_an_equal_one_is_open_or_in_doubt(standing: Any, said: str) -> None:
    path = ScriptedPath({"tools": {"order": {"dedup_ttl": 60}}})
    path.claims.earlier = EarlierCall("other run", "t9.0.0", standing)
    call, ledger = begun(path)

    outcome = await ledger.conclude(call, await path.made(call, ledger))

    assert (outcome.code, ledger.state(call), path.called) == ("duplicate", CallState.FAILED, [])
    assert said in outcome.text


@pytest.mark.parametrize("effect", ["idempotent", "unsafe"])
async def test_call_that_comes_first_is_made(effect: str) -> None:
    path = ScriptedPath({"tools": {"order": {"dedup_ttl": 60, "effect": effect}}})
    call, ledger = begun(path)

    await path.made(call, ledger)

    assert (path.called, ledger.state(call)) == (["order"], CallState.SUCCEEDED)
    assert [(place.call_key, seconds) for place, _, seconds in path.claims.asked] == [(call.key, 60)]


async def test_key_of_equal_calls_is_that_of_principal_tool_and_arguments() -> None:
    path = ScriptedPath({"tools": {"order": {"dedup_ttl": 60}}})

    for fields in ({}, {"path": "t2"}, {"caller": "key"}, {"arguments": {"id": 2}}):
        call, ledger = begun(path)
        await path.made(replace(call, **{name: value for name, value in fields.items() if name != "path"}), ledger)

    keys = [key for _, key, _ in path.claims.asked]
    assert keys[0] == keys[1]
    assert len({*keys}) == 3


@pytest.mark.parametrize(
    ("settings", "pinned"),
    [
        ({}, Effect.UNSAFE),
        ({"effect": "read"}, Effect.UNSAFE),
    ],
    ids=["unset", "read_now"],
)
async def test_nothing_is_claimed_without_the_setting(settings: dict[str, Any], pinned: Effect) -> None:
    path = ScriptedPath({"tools": {"order": settings}})
    path.claims.earlier = DONE
    call, ledger = begun(path, pinned)

    await path.made(call, ledger)

    assert (path.claims.asked, path.called) == ([], ["order"])


async def test_read_is_never_deduplicated() -> None:
    path = ScriptedPath({"tools": {"order": {"dedup_ttl": 60}}})
    path.claims.earlier = DONE

    await path.made(path.call("order", Effect.READ), make_execution().context.ledger)

    assert (path.claims.asked, path.called) == ([], ["order"])


async def test_call_that_an_earlier_process_sent_is_left_to_the_ledger() -> None:
    path = ScriptedPath({"tools": {"order": {"dedup_ttl": 60, "effect": "idempotent"}}})
    path.claims.earlier = DONE
    call, _ = begun(path)
    row = LedgerRow(
        call.key, "t1", 0, 0, "shop.order", Effect.IDEMPOTENT, call.arguments, CallState.DISPATCHED, fence=1,
        idempotency_key=call.idempotency_key,
    )  # fmt: skip
    ledger = make_execution(run=make_run(fence=2), rows=[row]).context.ledger

    await path.made(call, ledger)

    assert (path.claims.asked, path.called, ledger.state(call)) == ([], ["order"], CallState.SUCCEEDED)
