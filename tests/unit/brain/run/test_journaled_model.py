"""Model calls of a run: recorded, replayed, within the budget, with each new warning reported once."""

import contextlib
from dataclasses import replace

import pytest

from brain.interrupts.budget import Meter
from brain.lifecycle.termination import count_usage
from brain.run.journaled_model import ModelAnswer
from starling.core.errors import (
    BudgetExhaustedError,
    DeadlineExceededError,
    LLMInvalidResponse,
    LLMServerError,
    ModelError,
    SuspendedError,
)
from starling.core.events.run_events import Warn
from starling.core.llm import FailedAttempt, Message, ModelReply, ModelRequest, ModelRole, PromptVersion, TokenUsage
from tests.support.in_memory_run import ScriptedAnswer, make_execution, make_run, stored_interrupt

GONE, SKIPPED = "Model a: it can't be reached.", "Model a is skipped for a while because it did not answer recently."
HELLO = ModelRequest(ModelRole.REASONING, (Message("user", "Hi."),), timeout=600.0)
BUSY = LLMServerError("scripted:small", "busy")
FAILED = FailedAttempt(BUSY.model, BUSY.code, BUSY.reason)
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


async def test_steps_of_answers_and_failed_attempts_name_the_prompt() -> None:
    execution = make_execution(FAILED, "Hello.")
    wording = PromptVersion("qa", "7d", "langfuse", 3, "production", "agent_qa")

    await execution.context.model.ask("t1", 0, replace(HELLO, prompt=wording))

    named = {"name": "qa", "hash": "7d", "source": "langfuse", "version": 3, "label": "production"}
    named["remote_name"] = "agent_qa"
    assert [step.metadata["prompt"] for step in execution.sink.steps] == [named, named]


async def test_step_of_a_model_call_says_how_long_it_took_since_it_began_or_failed_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("brain.run.journaled_model.perf_counter", iter((10.0, 11.5, 14.0)).__next__)
    execution = make_execution(FAILED, "Hello.")

    await execution.context.model.ask("t1", 0, HELLO)

    assert [step.metadata["duration_ms"] for step in execution.sink.steps] == [1_500, 2_500]


async def test_recorded_answer_is_replayed_without_a_call() -> None:
    first = make_execution("Hello.")
    await first.context.model.ask("t1", 0, HELLO)
    second = make_execution(after=first)

    answer = await second.context.model.ask("t1", 0, HELLO)

    assert (answer.reply.content, answer.replayed, second.model.requests) == ("Hello.", True, [])


async def test_estimated_usage_is_warned_about_once_in_all_executions_of_a_run() -> None:
    first = make_execution("Hello.", "Hello again.")
    first.model.usage = TokenUsage(11, 7, estimated=True)
    for position in range(2):
        await first.context.model.ask("t1", position, HELLO)
    count_usage(meter := Meter(), first.sink.entries, 0)
    second = make_execution("Hello.", after=first)
    second.model.usage = first.model.usage
    second.context.budget.meter.tokens = meter.tokens
    await second.context.model.ask("t1", 2, HELLO)

    warned = [event.code for sink in (first.sink, second.sink) for event in sink.events if isinstance(event, Warn)]
    assert warned == ["usage_estimated"]
    assert [one.context.budget.meter.usage().estimated for one in (first, second)] == [True, True]


async def test_unreadable_answer_is_recorded_with_its_fault() -> None:
    first = make_execution(UNREADABLE)
    asked = await first.context.model.ask("t1", 0, HELLO, tolerant=True)
    second = make_execution(after=first)

    replayed = await second.context.model.ask("t1", 0, HELLO, tolerant=True)

    assert (asked.fault, asked.replayed) == ("the answer is empty", False)
    assert (replayed.fault, replayed.replayed, second.model.requests) == ("the answer is empty", True, [])


@pytest.mark.parametrize(
    ("answers", "calls"),
    [
        (("Hello.",), 1),
        ((FAILED, "Hello."), 2),
        ((FAILED, FAILED, BUSY), 2),  # the last failure is reported and raised
        ((FAILED, UNREADABLE), 2),
    ],
)
async def test_failed_attempts_count_as_model_calls_also_after_a_crash(
    answers: tuple[ScriptedAnswer, ...], calls: int
) -> None:
    execution, counted = make_execution(*answers, *answers), Meter()

    for _ in range(2):
        with contextlib.suppress(ModelError):
            await execution.context.model.ask("t1", 0, HELLO)
    count_usage(counted, execution.sink.entries, 0)

    assert execution.context.budget.meter.model_calls == counted.model_calls == 2 * calls
    assert len([step for step in execution.sink.steps if step.type == "llm_call"]) == 2 * calls
    assert len({(entry.kind, entry.position, entry.index) for entry in execution.sink.entries}) >= (calls > 1)


async def test_unreadable_answer_counts_as_one_model_call_with_its_failed_attempts() -> None:
    execution = make_execution(FAILED, UNREADABLE)

    await execution.context.model.ask("t1", 0, HELLO, tolerant=True)

    assert execution.context.budget.meter.model_calls == 2


async def test_announced_wait_is_a_warning_before_the_answer_and_not_repeated_after_it() -> None:
    waits = "Model scripted:small is rate limited, again in 20 s."
    execution = make_execution(replace(FAILED, warning=waits), ModelReply("Hello.", warnings=(waits,)))

    await execution.context.model.ask("t1", 0, HELLO)

    assert [event["message"] for event in execution.events("warning")] == [waits]
    assert [step.type for step in execution.sink.steps] == ["llm_call", "warning", "llm_call"]


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


async def test_warning_of_several_answers_is_reported_once() -> None:
    given = ((GONE,), (SKIPPED,), (SKIPPED,), (), (GONE,))
    execution = make_execution(*(ModelReply("Hello.", warnings=warnings) for warnings in given))

    for position in range(len(given)):
        await execution.context.model.ask("t1", position, HELLO)

    assert [event["message"] for event in execution.events("warning")] == [GONE, SKIPPED]
