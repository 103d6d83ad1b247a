"""The supervisor node: direct replies, questions to the user, requests for one agent, and what is replayed."""

from dataclasses import replace
from typing import Any

import pytest

from brain.registry.cards import AgentCard
from brain.state import initial_state
from starling.core.errors import LLMConnectionError
from starling.core.runs import Run, RunConfig
from starling.core.teams.stars import StarSpec
from starling.core.tool_calls import Effect
from starling.core.tools import ToolDefinition
from tests.support.in_memory_run import Execution, make_execution, make_run, stored_interrupt
from tests.support.model_documents import decision_json, task
from tests.support.supervisor_steps import BENCH, FAILED, REQUEST, decide, step, supervisor, suspended

QUESTION = decision_json(question="Which disk?", options=["the first", "the second"])
FINE = decision_json(reply="It is fine.")
KEY = "clarification/supervisor/1"
TIME = "What time is it in Lima?"
NOON = decision_json(reply="It is noon.")
TO_CLOCK = decision_json(task("t1", "mcp_agent_time"))
NOT_LOOKED_UP = "Not looked up: no agent was asked for this answer."


def clock_agent(**fields: Any) -> AgentCard:
    about = "Get the current time in a timezone."
    listed = ToolDefinition("time", "get_current_time", about, {}, None, Effect.READ, "0")
    return AgentCard("mcp_agent_time", "specialist", "Tells the time.", "time", (listed,), **fields)


async def test_direct_reply_is_sent_back_where_an_agent_certainly_has_a_tool() -> None:
    update, execution = await decide(NOON, TO_CLOCK, state=f"Hello. {TIME}", agents=[clock_agent(), BENCH])

    assert (update["reply"], update["next_step"]) == ("", ["t1"])
    first, second = execution.model.requests
    assert second.messages[: len(first.messages)] == first.messages
    assert [message.role for message in second.messages] == ["system", "user", "assistant", "user"]


@pytest.mark.parametrize(
    ("again", "reply"),
    [
        ([decision_json(reply="It is noon in Lima.")], "It is noon in Lima."),
        ([decision_json()] * 2, "It is noon."),
        ([LLMConnectionError("scripted:small", "it is away.")], "It is noon."),
    ],
    ids=["repeated", "empty", "error"],
)
async def test_direct_reply_that_was_sent_back_stands_and_is_marked(again: list[str | Exception], reply: str) -> None:
    update, _ = await decide(NOON, *again, state=TIME, agents=[clock_agent()])

    assert update["reply"] == f"{reply}\n\n{NOT_LOOKED_UP}"
    assert (update["next_step"], update["routing"]["direct"]) == ([], True)


@pytest.mark.parametrize(
    ("text", "agent", "star"),
    [
        ("Hi.", clock_agent(), None),
        ("Which poems did she write about the time after the war in Lima?", clock_agent(), None),
        (TIME, clock_agent(degraded="It is away."), None),
        ("What does a specialist of yours look at?", BENCH, None),
        (TIME, clock_agent(), StarSpec(name="clocks")),
    ],
    ids=["small-talk", "few-words", "degraded", "no-tool", "of-a-team"],
)
async def test_direct_reply_stands_where_no_agent_is_certain(
    text: str, agent: AgentCard, star: StarSpec | None
) -> None:
    node = replace(supervisor(), star=star) if star else supervisor()

    update, execution = await decide(NOON, state=text, agents=[agent], node=node)

    assert (update["reply"], len(execution.model.requests)) == ("It is noon.", 1)


async def test_resumed_decision_that_was_sent_back_asks_nothing_again() -> None:
    begun, first = await decide(NOON, TO_CLOCK, state=TIME, agents=[clock_agent()])
    second = make_execution(agents=[BENCH], run=make_run(fence=2), after=first)
    second = replace(second, context=replace(second.context, roster=first.context.roster))

    update = await step(supervisor(), initial_state(TIME), second)

    assert (update["next_step"], second.model.requests) == (begun["next_step"], [])


async def test_direct_reply_that_was_adopted_by_an_earlier_version_stands() -> None:
    _, first = await decide(NOON, state=TIME, agents=[BENCH])

    update, second = await decide(state=TIME, agents=[clock_agent()], run=make_run(fence=2), after=first)

    assert (update["reply"], second.model.requests) == ("It is noon.", [])


async def test_direct_reply_keeps_the_parts_that_it_leaves_unserved() -> None:
    unserved = [{"part": "book a flight", "reason": "no agent books flights"}]

    update, _ = await decide(decision_json(reply="Hello!", unserved=unserved), state="Hi. Book a flight.")

    assert update["degraded"] == unserved


async def test_replayed_decision_is_asked_and_reported_once() -> None:
    before, first = await decide(decision_json(task("t1", "bench")))

    update, second = await decide(agents=[replace(BENCH, degraded="The server is away.")], after=first)

    assert update["plan"] == before["plan"]
    assert (second.model.requests, second.kinds) == ([], [])


async def asked() -> tuple[Execution, Any]:
    """Ask the user a question; return the execution and the event."""
    execution = make_execution(QUESTION)
    waits = await suspended(execution)
    [event] = execution.events("clarification")
    assert (event["message"], waits) == ("Which disk?", [event["id"]])
    return execution, event


async def test_question_suspends_and_is_asked_once() -> None:
    execution, event = await asked()

    again = make_execution(after=execution, interrupts=[stored_interrupt(event, "clarification", KEY, state="open")])

    assert await suspended(again) == [event["id"]]
    assert (again.kinds, again.model.requests) == ([], [])


async def test_answer_leads_to_a_decision_that_may_not_ask_again() -> None:
    first, event = await asked()
    answered = stored_interrupt(event, "clarification", KEY, payload={"answer": "the second"})

    update, second = await decide(FINE, after=first, interrupts=[answered])

    [request] = second.model.requests
    assert (update["reply"], update["messages"][1]["content"]) == ("It is fine.", "the second")
    assert "the second" in request.messages[1].content
    assert "question" not in str(request.response)


@pytest.mark.parametrize("state", ["expired", "cancelled"])
async def test_unanswered_question_becomes_an_assumption(state: str) -> None:
    first, event = await asked()
    unanswered = stored_interrupt(event, "clarification", KEY, state=state)

    update, _ = await decide(FINE, after=first, interrupts=[unanswered])

    assert "Which disk?" in update["assumptions"][0]


async def test_caller_that_allows_no_questions_is_not_asked() -> None:
    _, execution = await decide(FINE, run=make_run(max_clarifications=0))

    [request] = execution.model.requests
    assert "question" not in str(request.response)
    assert "You can't ask the user" in str(request.messages)


def sent_to(agent: str) -> Run:
    """A run of which one agent gets the whole request."""
    return replace(make_run(REQUEST), config=RunConfig(agent=agent))


async def test_request_for_one_agent_is_its_task_without_a_model() -> None:
    update, execution = await decide(run=sent_to("bench"))

    assert [(task["agent"], task["task"]) for task in update["tasks"]] == [("bench", REQUEST)]
    assert (update["next_step"], execution.model.requests) == (["t1"], [])


async def test_failed_task_of_a_request_for_one_agent_is_not_decided_again() -> None:
    update, execution = await decide(state=FAILED, run=sent_to("bench"))

    assert (update["next_step"], execution.model.requests) == ([], [])


async def test_request_for_an_unknown_agent_names_near_ones() -> None:
    update, _ = await decide(run=sent_to("benhc"))

    assert update["next_step"] == []
    assert "Did you mean bench?" in update["degraded"][0]["reason"]
