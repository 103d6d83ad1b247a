"""Model calls of a run: recorded, replayed, within the budget, with each new warning reported once."""

from dataclasses import replace

import pytest

from brain.journaled_model import ModelAnswer, ModelWarnings
from starling.core.errors import (
    BudgetExhaustedError,
    DeadlineExceededError,
    JournalDivergedError,
    LLMInvalidResponse,
    SuspendedError,
)
from starling.core.llm import Message, ModelReply, ModelRequest, ModelRole
from tests.support.in_memory_run import make_execution, make_run, stored_interrupt

REVIEW, CALL = ModelRequest(ModelRole.REASONING, ()), ModelRequest(ModelRole.ROUTER, ())
GONE, SKIPPED = "Model a: it can't be reached.", "Model a is skipped for a while because it did not answer recently."
HELLO = ModelRequest(ModelRole.REASONING, (Message("user", "Hi."),), timeout=600.0)
UNREADABLE = LLMInvalidResponse("scripted:small", "the answer is empty")


async def test_answer_is_recorded_and_counted() -> None:
    execution = make_execution("Hello.")

    answer = await execution.context.model.ask("t1", 0, HELLO)

    assert (answer.reply.content, answer.replayed) == ("Hello.", False)
    assert [(entry.path, entry.kind, entry.position) for entry in execution.sink.entries] == [("t1", "answer", 0)]
    assert execution.context.budget.meter.usage().model_dump() == {
        "tokens": 18, "input_tokens": 11, "output_tokens": 7, "model_calls": 1, "tool_calls": 0,
    }  # fmt: skip
    assert execution.sink.steps[0].metadata["model"] == "scripted:small"


async def test_recorded_answer_is_replayed_without_a_call() -> None:
    first = make_execution("Hello.")
    await first.context.model.ask("t1", 0, HELLO)
    second = make_execution(after=first)

    answer = await second.context.model.ask("t1", 0, HELLO)

    assert (answer.reply.content, answer.replayed, second.model.requests) == ("Hello.", True, [])


async def test_recorded_answer_to_another_request_is_not_used() -> None:
    first = make_execution("Hello.")
    await first.context.model.ask("t1", 0, HELLO)

    with pytest.raises(JournalDivergedError):
        await make_execution(after=first).context.model.ask("t1", 0, replace(HELLO, temperature=0.9))


async def test_unreadable_answer_is_recorded_with_its_fault() -> None:
    first = make_execution(UNREADABLE)
    asked = await first.context.model.ask_tolerantly("t1", 0, HELLO)
    second = make_execution(after=first)

    replayed = await second.context.model.ask_tolerantly("t1", 0, HELLO)

    assert (asked.fault, asked.replayed) == ("the answer is empty", False)
    assert (replayed.fault, replayed.replayed, second.model.requests) == ("the answer is empty", True, [])


async def test_streamed_answer_is_recorded_and_replayed_whole() -> None:
    first = make_execution("Hello you.")
    streamed = [item async for item in first.context.model.ask_streaming("qa/1", 0, HELLO)]

    replayed = [item async for item in make_execution(after=first).context.model.ask_streaming("qa/1", 0, HELLO)]

    assert len(streamed) == 3
    [answer] = replayed
    assert isinstance(answer, ModelAnswer)
    assert (answer.reply.content, answer.replayed) == ("Hello you.", True)


async def test_call_may_take_no_longer_than_the_run() -> None:
    execution = make_execution("Hello.", seconds=5.0)

    await execution.context.model.ask("t1", 0, HELLO)

    assert 0 < execution.model.requests[0].timeout <= 5.0


async def test_no_model_is_asked_after_the_deadline() -> None:
    execution = make_execution(seconds=0.0)

    with pytest.raises(DeadlineExceededError):
        await execution.context.model.ask("t1", 0, HELLO)


async def test_used_up_tokens_are_asked_for_once_and_more_of_them_let_the_run_go_on() -> None:
    run = make_run(tokens=18)
    execution = make_execution("Hello.", run=run)
    await execution.context.model.ask("t1", 0, HELLO)
    for position in (1, 2):
        with pytest.raises(SuspendedError):
            await execution.context.model.ask("t1", position, HELLO)
    [asked] = execution.events("budget_required")

    granted = stored_interrupt(asked, "budget", "budget/0", payload={"tokens": 100.0})
    resumed = make_execution("Hello.", "Again.", run=run, interrupts=[granted])
    await resumed.context.model.ask("t1", 0, HELLO)

    assert (await resumed.context.model.ask("t1", 1, HELLO)).reply.content == "Again."


@pytest.mark.parametrize("state", ["cancelled", "expired"])
async def test_refused_tokens_exhaust_the_run(state: str) -> None:
    run = make_run(tokens=18)
    execution = make_execution("Hello.", run=run)
    await execution.context.model.ask("t1", 0, HELLO)
    with pytest.raises(SuspendedError):
        await execution.context.model.ask("t1", 1, HELLO)
    [asked] = execution.events("budget_required")

    resumed = make_execution("Hello.", run=run, interrupts=[stored_interrupt(asked, "budget", "budget/0", state=state)])
    await resumed.context.model.ask("t1", 0, HELLO)
    with pytest.raises(BudgetExhaustedError):
        await resumed.context.model.ask("t1", 1, HELLO)

    assert resumed.context.budget.meter.exhausted


async def test_warning_of_an_answer_is_reported_in_stream_and_record() -> None:
    execution = make_execution(ModelReply("Hello.", warnings=(GONE,)))

    await execution.context.model.ask("t1", 0, HELLO)

    assert execution.warnings == ["model"]
    assert [step.description for step in execution.sink.steps if step.type == "warning"] == [GONE]


def test_lasting_warning_is_new_once_for_all_roles() -> None:
    warnings = ModelWarnings()

    new = [
        warnings.new_warnings(*answer)
        for answer in ((REVIEW, [GONE]), (CALL, [SKIPPED]), (REVIEW, [SKIPPED]), (CALL, ()))
    ]

    assert new == [[GONE], [SKIPPED], [], []]


def test_warning_that_was_over_is_new_again() -> None:
    warnings = ModelWarnings()

    new = [warnings.new_warnings(REVIEW, given) for given in ([SKIPPED], [SKIPPED], [], [SKIPPED], [GONE], [SKIPPED])]

    assert new == [[SKIPPED], [], [], [SKIPPED], [GONE], [SKIPPED]]
