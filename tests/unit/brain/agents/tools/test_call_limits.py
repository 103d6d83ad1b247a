"""How many calls leave: identical ones of an answer once, and no more than an answer and a task may make."""

from collections.abc import Mapping
from typing import Any

import pytest

from brain.agents.tools import requested_calls
from brain.registry.cards import AgentCard
from brain.state import TaskOutcome
from starling.core.errors import LLMServerError
from starling.core.llm import ModelReply, ModelToolCall
from starling.core.settings.schema import Limits
from starling.core.tool_calls import Effect, Observation
from starling.core.tools import ToolOutcome
from tests.support.in_memory_run import Execution, ScriptedAnswer, make_execution, make_run, tool_calls
from tests.support.model_documents import verdict_json
from tests.support.runtime_harness import dispatch, pipeline_of, tool_access
from tests.support.scripted_gateway import ScriptedGateway, tool

ORDER, PUT = tool("order", Effect.UNSAFE), tool("put", Effect.IDEMPOTENT)
SHOP = AgentCard("shop", "specialist", "Sells.", server="bench", tools=(ORDER, PUT, tool("look")))
TOO_MANY = "Not called: an answer may ask for at most 16 tool calls, and this one asked for 20."
GO_ON: tuple[str, Mapping[str, Any]] = ("continue", {})
APPROVED = verdict_json("APPROVED")
STOPPED = LLMServerError("scripted:small", "stopped here")


def begin(*answers: ScriptedAnswer, **fields: Any) -> Execution:
    return make_execution(*answers, agents=[SHOP], **fields)


async def run(begun: Execution, gateway: ScriptedGateway, *, calls_before: int = 0, **limits: Any) -> TaskOutcome:
    sent = dispatch(agent="shop", whole_plan=True, calls_before=calls_before)
    return await pipeline_of(tool_access(gateway, Limits(**limits))).run(begun.context, sent)


def looks(count: int, *, start: int = 0) -> ModelReply:
    return tool_calls(*(("look", {"thing": number}) for number in range(start, start + count)))


def crashed_before_the_review(begun: Execution) -> Execution:
    """The same execution, with what a process that died before its first review had recorded."""
    begun.sink.entries[:] = [entry for entry in begun.sink.entries if entry.kind != "result"]
    return begun


def tool_texts(begun: Execution, request: int) -> list[str]:
    return [message.content for message in begun.model.requests[request].messages if message.role == "tool"]


@pytest.mark.parametrize(("name", "left"), [("order", 1), ("put", 1), ("look", 3)])
async def test_identical_calls_of_an_answer_leave_once_unless_they_only_read(name: str, left: int) -> None:
    gateway = ScriptedGateway()
    begun = begin(tool_calls(*[(name, {"item": "tea", "count": 2})] * 3), APPROVED)

    await run(begun, gateway)

    assert len(gateway.calls) == len(begun.events("tool_start")) == len(begun.events("tool_result")) == left


async def test_other_arguments_make_another_call_and_another_order_of_them_none() -> None:
    gateway, tea = ScriptedGateway(), {"item": "tea", "count": 2}
    begun = begin(
        tool_calls(*(("order", args) for args in (tea, {"count": 2, "item": "tea"}, tea | {"count": 3}))), APPROVED
    )

    await run(begun, gateway)

    assert [call.arguments["count"] for call in gateway.calls] == [2, 3]


async def test_two_hundred_identical_calls_are_one_effect_and_all_are_answered_from_it() -> None:
    gateway = ScriptedGateway()
    begun = begin(tool_calls(*[("order", {"item": "tea"})] * 200, GO_ON), tool_calls(("look", {})), APPROVED)

    outcome = await run(begun, gateway)

    note = "[bench.order was asked for 200 times with these arguments in one answer. These count as one call; to make "
    assert [call.tool.name for call in gateway.calls] == ["order", "look"]
    assert begun.context.ledger.settled == 1
    assert begun.context.budget.meter.tool_calls == 2
    assert begun.warnings == ["identical_calls"]
    answered = tool_texts(begun, 1)
    assert (len(answered), len([text for text in answered if text.startswith(f"order is done\n{note}")])) == (201, 200)
    assert outcome["output"].count(note) == 1


async def test_failure_of_a_repeated_call_is_that_of_all() -> None:
    gateway = ScriptedGateway(lambda call: ToolOutcome(Observation.TOOL_ERROR, "sold out", code="tool_error"))
    begun = begin(tool_calls(*[("order", {"item": "tea"})] * 2), "I can't.", limits=Limits(max_attempts=2))

    outcome = await run(begun, gateway)

    assert len(gateway.calls) == 1
    assert outcome["reason"].startswith("bench.order failed: sold out")


async def test_replay_finds_the_one_call_and_makes_none() -> None:
    gateway = ScriptedGateway()
    first = begin(tool_calls(*[("order", {"item": "tea"})] * 20, GO_ON), looks(1), STOPPED)
    await run(first, gateway)
    second = begin(APPROVED, after=crashed_before_the_review(first), run=make_run(fence=2))

    outcome = await run(second, gateway)

    assert outcome["status"] == "approved"
    assert [call.tool.name for call in gateway.calls] == ["order", "look"]
    assert second.warnings == []


async def test_calls_over_the_limit_of_an_answer_are_told_to_the_agent_which_goes_on() -> None:
    gateway = ScriptedGateway()
    begun = begin(looks(20), looks(4, start=16), APPROVED)

    outcome = await run(begun, gateway)

    told = tool_texts(begun, 1)
    assert len(gateway.calls) == 20
    assert told[:16] == ["look is done"] * 16
    assert set(told[16:]) == {f"{TOO_MANY} Ask for the others in your next answer."}
    [warning] = begun.events("warning")
    assert (warning["code"], warning["task_id"]) == ("limit_reached", "t1")
    assert warning["message"].startswith("shop: 4 tool calls are not made. Not called: an answer may ask for")
    assert len(begun.events("tool_start")) == len(begun.events("tool_result")) == 20
    assert outcome["status"] == "approved"


async def test_invented_calls_count_in_the_limit_of_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requested_calls, "CALLS_PER_ANSWER", 3)
    invented: list[tuple[str, Mapping[str, Any]]] = [(f"fly{number}", {}) for number in range(9)]
    begun = begin(tool_calls(*invented), "No.", "")

    await run(begun, ScriptedGateway())

    assert len(begun.events("tool_start")) == 3


async def test_calls_over_the_limit_of_a_task_are_refused_with_one_warning() -> None:
    gateway = ScriptedGateway()
    turns = [
        ModelReply("", tool_calls=(*looks(3, start=n).tool_calls, *tool_calls(GO_ON).tool_calls)) for n in (0, 3, 6)
    ]
    begun = begin(*turns, APPROVED)

    await run(begun, gateway, tool_calls_per_task=4)

    assert len(gateway.calls) == 4
    assert begun.warnings == ["limit_reached"]
    assert tool_texts(begun, 2)[5].startswith("Not called: a task may make at most 4 tool calls, and this one has made")


async def test_calls_of_an_earlier_try_count_in_the_limit_of_a_task() -> None:
    gateway = ScriptedGateway()
    begun = begin(looks(3), looks(1), APPROVED)

    await run(begun, gateway, calls_before=46)

    assert len(gateway.calls) == 2


async def test_task_whose_calls_were_all_refused_fails_with_the_limit_as_its_reason() -> None:
    begun = begin(looks(3), "I am done.")

    outcome = await run(begun, ScriptedGateway(), calls_before=48)

    assert outcome["reason"].startswith("bench.look failed: Not called: a task may make at most 48 tool calls")
    assert outcome.get("code") == "over_limit"


async def test_replay_refuses_the_same_calls_whatever_the_limits_are_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requested_calls, "CALLS_PER_ANSWER", 3)
    gateway = ScriptedGateway()
    first = begin(looks(5), looks(1, start=4), STOPPED)
    await run(first, gateway)
    second = begin(APPROVED, after=crashed_before_the_review(first), run=make_run(fence=2))

    monkeypatch.setattr(requested_calls, "CALLS_PER_ANSWER", 1)
    outcome = await run(second, gateway)

    assert (outcome["status"], second.warnings, len(gateway.calls)) == ("approved", [], 4)


async def test_calls_announced_without_a_limit_are_all_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = ScriptedGateway()
    asked = tuple(ModelToolCall(f"call{number}", "look", {"thing": number}) for number in range(5))
    first = begin(ModelReply("", tool_calls=asked), STOPPED)
    await run(first, gateway)
    second = begin(APPROVED, after=crashed_before_the_review(first))

    monkeypatch.setattr(requested_calls, "CALLS_PER_ANSWER", 1)
    outcome = await run(second, gateway)

    assert (outcome["status"], len(outcome["tools"])) == ("approved", 5)
