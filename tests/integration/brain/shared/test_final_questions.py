"""A run that the circuit breaker ends may ask the user one question before it answers."""

import json
from typing import Any

import pytest

from starling.core.runs import RunStatus
from starling.infra.postgres.runs.acceptance import RunKey
from tests.support.interrupted_runs import execute_run, open_interrupts
from tests.support.model_script import Answer
from tests.support.platform import BENCH, Platform, ScriptedModel, calls, decision, task, verdict

pytestmark = pytest.mark.asyncio(loop_scope="module")

AGAIN = decision(task("t1", BENCH, "look"))
LOOK = calls(("look", {"thing": "disk"}))
ASKS = Answer(json.dumps({"question": "Which disk?", "options": ["the first", "the second"]}))


async def asked(platform: Platform, **config: Any) -> RunKey:
    """Begin a run that goes round in circles, and execute it until it waits or ends."""
    key = await platform.accept("How is it?", **config)
    await execute_run(platform, key)
    return key


def circle(script: ScriptedModel, *later: Answer) -> None:
    """Script a supervisor that gives the same failing task three times, and then decides `later`."""
    decisions(script, AGAIN, AGAIN, AGAIN, *(later or (AGAIN,)))


def decisions(script: ScriptedModel, *answers: Answer) -> None:
    """Script decisions of which `t1` always fails and `t2` doesn't, and the question in place of an answer."""
    script.question(ASKS)
    script.supervisor(*answers)
    script.agent("t1", LOOK)
    script.agent("t2", LOOK)
    script.reviewer(verdict("REJECTED", "No."), of="t1")
    script.reviewer(verdict("APPROVED"), of="t2")


async def test_answer_leads_to_another_decision_and_the_run_ends_with_its_results(
    platform: Platform, script: ScriptedModel
) -> None:
    circle(script, decision(task("t2", BENCH, "look at the second disk")))
    script.qa(Answer("The second disk is fine [1]."))

    key = await asked(platform)
    [open_one] = await open_interrupts(platform, key)
    await platform.accept("the second")
    await execute_run(platform, key)

    stream = await platform.stream(key)
    assert (open_one.kind, open_one.message) == ("clarification", "Which disk?")
    assert stream.status == "succeeded"
    assert ("t2", "approved") in [(event["task_id"], event["status"]) for event in stream.of("task_result")]
    assert "The second disk is fine [1]." in stream.done["reply"]
    assert "the second" in platform.requests_containing("You supervise agents")[-1]["messages"][1]["content"]


async def test_run_asks_at_most_once_and_answers_with_what_is_missing(
    platform: Platform, script: ScriptedModel
) -> None:
    circle(script)

    key = await asked(platform)
    await platform.accept("the second")
    await execute_run(platform, key)

    stream = await platform.stream(key)
    assert len(stream.of("clarification")) == 1
    assert (stream.status, len(platform.requests_containing("Don't write the answer yet"))) == ("failed", 1)


async def test_caller_that_allows_no_questions_gets_the_answer_at_once(
    platform: Platform, script: ScriptedModel
) -> None:
    circle(script)

    key = await asked(platform, limits={"max_clarifications": 0})

    assert (await platform.services.runs.documents.row(key)).status is RunStatus.FAILED
    assert not platform.requests_containing("Don't write the answer yet")


async def test_both_questions_of_one_turn_stay_in_the_run(platform: Platform, script: ScriptedModel) -> None:
    asks = decision(question="Which room?", plan=["look"])
    other = decision(task("t2", BENCH, "look at the second disk"))
    decisions(script, AGAIN, AGAIN, asks, AGAIN, other)
    script.qa(Answer("The second disk is fine [1]."))

    key = await asked(platform)
    for answer in ("the cellar", "the second"):
        await platform.accept(answer)
        await execute_run(platform, key)

    last = platform.requests_containing("You supervise agents")[-1]["messages"][1]["content"]
    assert (await platform.stream(key)).status == "succeeded"
    assert all(text in last for text in ("Which room?", "the cellar", "Which disk?", "the second"))


async def test_answer_is_written_with_the_conversation_before_a_question(
    platform: Platform, script: ScriptedModel
) -> None:
    script.run(
        decision(reply="Good morning, Ada."),
        decision(task("t1", BENCH)),
        decision(question="Which room?", plan=["look"]),
        decision(is_request_satisfied=True),
        t1=LOOK,
        qa=Answer("Fine [1]."),
    )
    await platform.ask("Hi, I am Ada.")

    key = await asked(platform, replan="always")
    await platform.accept("the cellar")
    await execute_run(platform, key)

    written = platform.requests_containing("You write the final answer")[-1]["messages"][1]["content"]
    assert (await platform.stream(key)).status == "succeeded"
    assert "I am Ada" in written
    assert "the cellar" in written
