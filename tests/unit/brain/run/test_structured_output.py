"""Documents from models: what is accepted at once, what is said of refused answers, and what a resumed run does."""

import pytest

from brain.planning.decision import Verdict
from brain.run.structured_output import ask_for_document
from starling.core.errors import LLMInvalidResponse
from starling.core.llm import Message, ModelRequest, ModelRole
from tests.support.in_memory_run import Execution, make_execution

ASKED = ModelRequest(ModelRole.REASONING, (Message("system", "Review."), Message("user", "It is noon.")))
LONG = f"The output is fine. {'Really. ' * 100}"
EXPECTED = 'one JSON object with "status" (APPROVED, FIXED or REJECTED), "reasons", and "refined_output" if FIXED'


async def ask(execution: Execution) -> Verdict:
    return await ask_for_document(execution.context.model, "t1/review", 0, ASKED, Verdict)


async def test_refused_answer_is_reported_and_sent_back_with_the_same_excerpt_and_expectation() -> None:
    execution = make_execution(LONG, '{"status": "APPROVED"}')

    verdict = await ask(execution)

    [warning] = execution.events("warning")
    *_, said, asked = execution.model.requests[1].messages
    assert verdict.status == "APPROVED"
    assert warning["message"] == (
        f"scripted:small answered with an invalid document: document: there is no JSON object. "
        f"Expected: {EXPECTED}. It wrote: {said.content}"
    )
    assert (len(said.content), said.content[:30]) == (300, LONG[:30])
    assert f"<expected>{EXPECTED}</expected>" in asked.content
    assert "<validation_error>document: there is no JSON object</validation_error>" in asked.content


async def test_second_refused_answer_is_in_the_error() -> None:
    execution = make_execution("Fine.", '{"verdict": "fine"}')

    with pytest.raises(LLMInvalidResponse) as caught:
        await ask(execution)

    assert 'Expected: one JSON object with "status"' in str(caught.value)
    assert 'It wrote: {"verdict": "fine"}' in str(caught.value)


async def test_answer_that_was_refused_before_a_restart_stays_refused() -> None:
    first = make_execution('Sure! {"status": "APPROVED"}', '{"status": "REJECTED"}')
    await first.context.model.ask("t1/review", 0, ASKED)  # by a version that could not read it,
    former_repair = ModelRequest(ModelRole.REASONING, (Message("user", "Answer in JSON."),))
    await first.context.model.ask("t1/review", 1, former_repair)  # and asked again in other words
    second = make_execution(after=first)

    verdict = await ask(second)

    assert (verdict.status, second.model.requests, second.warnings) == ("REJECTED", [], [])
