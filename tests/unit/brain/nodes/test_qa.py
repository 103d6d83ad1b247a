"""The QA node: answers that need no model, streamed answers, and the text that replaces a failed one."""

from typing import Any

import pytest
from langgraph.runtime import Runtime

from brain.nodes.qa import Qa
from brain.prompts import prompt
from brain.state import DegradedPart, GraphState, TaskOutcome, TaskRecord, Update, after, initial_state
from starling.core.errors import LLMTimeout
from tests.support.in_memory_run import Execution, make_execution, make_run


def answered(*outputs: str, tools: bool = True, **fields: Any) -> GraphState:
    """The state with an approved task for each output."""
    ids = [f"t{number}" for number in range(1, len(outputs) + 1)]
    tasks = [TaskRecord(id=key, agent="bench", task=f"do {key}", depends_on=[], status="approved") for key in ids]
    results = [outcome(key, output, tools=tools) for key, output in zip(ids, outputs, strict=True)]
    return after(initial_state("How is the disk?"), {"tasks": tasks, "results": results, **fields})


def outcome(task_id: str, output: str, *, tools: bool) -> TaskOutcome:
    uses: Any = [{"tool": "bench.look", "status": "succeeded"}] * 2 if tools else []
    return TaskOutcome(
        task_id=task_id, agent="bench", status="approved", output=output, reason="", attempts=1, tools=uses
    )


async def step(state: GraphState, execution: Execution) -> Update:
    return await Qa(prompt("qa"))(state, Runtime(context=execution.context))


FLIGHT = DegradedPart(part="book a flight", reason="no agent books flights")


async def test_direct_reply_is_streamed_without_a_model() -> None:
    execution = make_execution()

    update = await step(after(initial_state("Hi."), {"reply": "Hello!"}), execution)

    assert update == {"reply": "Hello!", "citations": []}
    assert (execution.text, execution.model.requests) == ("Hello!", [])


async def test_direct_reply_names_the_parts_that_it_leaves_out() -> None:
    execution = make_execution()

    update = await step(after(initial_state("Hi."), {"reply": "Hello!", "degraded": [FLIGHT]}), execution)

    assert update["reply"] == "Hello!\n\nNot answered: book a flight (no agent books flights)"


async def test_failed_plan_is_answered_with_its_reason() -> None:
    update = await step(after(initial_state("Hi."), {"failure": "It couldn't be planned."}), make_execution())

    assert update["reply"] == "It couldn't be planned."


async def test_only_text_of_the_plan_is_the_answer_without_a_model() -> None:
    execution = make_execution()

    update = await step(answered("print(1)", tools=False), execution)

    assert (update["reply"], execution.model.requests, execution.kinds) == ("print(1)", [], [])


async def test_results_are_consolidated_and_streamed() -> None:
    execution = make_execution("The disk is fine [1], so is the door [2]. ")

    update = await step(answered("the disk is fine", "the door is fine"), execution)

    assert update["reply"] == execution.text.strip() == "The disk is fine [1], so is the door [2]."
    assert update["citations"] == [
        {"id": 1, "task_id": "t1", "agent": "bench", "tools": ["bench.look"]},
        {"id": 2, "task_id": "t2", "agent": "bench", "tools": ["bench.look"]},
    ]


async def test_prompt_names_results_assumptions_and_degraded_parts() -> None:
    execution = make_execution("Fine.")
    state = answered("the disk is fine", degraded=[FLIGHT], assumptions=["the first disk"])

    await step(state, execution)

    [asked] = execution.model.prompts
    assert 'citation="1">the disk is fine</result>' in asked
    assert '<part reason="no agent books flights">book a flight</part>' in asked
    assert "<assumption>the first disk</assumption>" in asked


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (LLMTimeout("scripted:small", "no answer"), "llm_timeout"),
        ("  ", "llm_invalid_response"),
    ],
    ids=["error", "empty"],
)
async def test_results_as_they_are_replace_an_answer_that_fails(answer: str | Exception, code: str) -> None:
    execution = make_execution(answer)

    update = await step(answered("the disk is fine", degraded=[FLIGHT]), execution)

    expected = "the disk is fine [1]\n\nNot answered: book a flight (no agent books flights)"
    assert update["reply"] == execution.text == expected
    assert execution.warnings == [code]


async def test_answer_after_the_deadline_is_the_results_as_they_are() -> None:
    execution = make_execution(seconds=0.0)

    update = await step(answered("the disk is fine"), execution)

    assert (update["reply"], execution.warnings) == ("the disk is fine [1]", ["deadline_exceeded"])


async def test_replayed_answer_asks_no_model() -> None:
    first = make_execution("The disk is fine [1].")
    await step(answered("the disk is fine"), first)
    second = make_execution(run=make_run(fence=2), after=first)

    update = await step(answered("the disk is fine"), second)

    assert (update["reply"], second.model.requests) == ("The disk is fine [1].", [])
