"""The states of a run are a function of its document."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from starling.core.conversation.states import (
    AgentCallState,
    AgentResultState,
    AssistantMessageState,
    ToolCallState,
    ToolResultState,
    UserResponseState,
    WaitingState,
)
from starling.core.conversation.transitions import check
from starling.core.conversation.turn import pack, states_of, unpack
from starling.core.run_document.document import RunDocument
from tests.support.run_story import BEGAN, SHOP, WEATHER, RunStory, planned


def one_task(story: RunStory) -> RunDocument:
    story.plan(planned("t1", WEATHER, "look"))
    story.done("t1")
    return story.document()


def calls_in_parallel(story: RunStory) -> RunDocument:
    story.plan(planned("t1", WEATHER, "look"), planned("t2", SHOP, "buy"))
    story.start("t1")
    story.start("t2")
    first = story.begin_call("t1", "weather.now")
    story.call("t2", "shop.buy", "no stock", "tool_failed", args={"what": "x" * 700})
    story.event("tool_result", name="weather.now", call_id=first, result="18 degrees", status="succeeded")
    story.end("t2", "no stock", "tool_failed")
    story.end("t1")
    return story.document("failed")


def team(story: RunStory) -> RunDocument:
    story.plan(planned("t1", "crew", "plan a trip"))
    story.start("t1")
    story.plan(planned("t1", WEATHER, "look"), star="t1")
    story.fail("t1/t1", "weather.now", "away", "server_unavailable")
    story.start("t1")  # a second attempt, whose star is another one
    story.plan(planned("t1", WEATHER, "look"), star="t1:2")
    story.done("t1:2/t1")
    story.end("t1")
    return story.document()


def question(story: RunStory) -> RunDocument:
    story.ask("clarification", "resolved", "supervisor/1", message="Which?", answer="This.", answered_at=story.now)
    story.ask("clarification", "expired", "supervisor/2", message="Sure?")
    return story.document()


def approval(story: RunStory) -> RunDocument:
    story.plan(planned("t1", SHOP, "buy"))
    story.start("t1")
    story.ask("approval", "resolved", "t1", call={"call_id": "t1.0.0", "path": "t1"})
    story.call("t1", "shop.buy", "bought", args={"what": "x"})
    story.end("t1")
    return story.document()


def never_begun(story: RunStory) -> RunDocument:
    story.plan(planned("t1", WEATHER, "look"), planned("t2", SHOP, "buy", "t1"))
    story.end("t1", "it can't be asked", "not_granted")
    return story.document("failed")


def goes_on(story: RunStory) -> RunDocument:
    story.plan(planned("t1", SHOP, "buy"))
    story.start("t1")
    story.begin_call("t1", "shop.look")
    story.begin_call("t1", "shop.buy", same_answer=True)
    story.ask("approval", "open", "t1", call={"call_id": "t1.0.1", "path": "t1"})
    return story.document("running")


STORIES = (one_task, calls_in_parallel, team, question, approval, never_begun, goes_on)


def shown(document: RunDocument) -> list[tuple[str, str, int | None]]:
    return [(type(one.state).__name__.removesuffix("State"), one.agent, one.parent) for one in states_of(document)]


@pytest.mark.parametrize("tell", STORIES, ids=lambda tell: tell.__name__)
def test_states_follow_the_table_of_transitions_and_come_back_from_their_row(
    tell: Callable[[RunStory], RunDocument],
) -> None:
    states = states_of(tell(RunStory()))

    for number, one in enumerate(states):
        check([before.state for before in states[:number]], one.state)
    assert unpack(pack(states)) == states
    assert pack(states).length == len(states)


def test_calls_that_run_in_parallel_are_in_the_order_of_events() -> None:
    assert shown(calls_in_parallel(RunStory())) == [
        ("UserMessage", "supervisor", None),
        ("AgentCall", WEATHER, None),
        ("AgentCall", SHOP, None),
        ("ToolCall", WEATHER, 1),
        ("ToolCall", SHOP, 2),
        ("ToolResult", SHOP, 2),
        ("ToolResult", WEATHER, 1),
        ("AgentResult", SHOP, None),
        ("AgentResult", WEATHER, None),
        ("AssistantMessage", "supervisor", None),
        ("Finished", "supervisor", None),
    ]


def test_members_of_a_team_are_inside_the_call_of_their_team() -> None:
    states = shown(team(RunStory()))

    assert [state for state in states if state[2] is None] == [
        ("UserMessage", "supervisor", None),
        ("AgentCall", "crew", None),
        ("AgentResult", "crew", None),
        ("AssistantMessage", "supervisor", None),
        ("Finished", "supervisor", None),
    ]
    assert [state for state in states if state[0].startswith("Agent") and state[1] == WEATHER] == [
        ("AgentCall", WEATHER, 1),
        ("AgentResult", WEATHER, 1),
    ] * 2


def test_a_question_is_a_message_a_wait_and_an_answer_or_a_result_that_says_there_was_none() -> None:
    states = [one.state for one in states_of(question(RunStory()))]

    deadline = (BEGAN + timedelta(seconds=1, hours=1)).timestamp()
    wait = WaitingState(kind="user_input", deadline=deadline, correlation_id="018f0000-0000-7000-8000-000000000001")
    assert states[1:4] == [AssistantMessageState(content="Which?"), wait, UserResponseState(text="This.")]
    assert isinstance(states[6], AgentResultState)
    assert states[6].result["status"] == "expired"


def test_a_run_that_goes_on_ends_with_what_is_open() -> None:
    states = [one.state for one in states_of(goes_on(RunStory()))]

    waits = [
        (state.kind, state.correlation_id, bool(state.deadline)) for state in states if isinstance(state, WaitingState)
    ]
    assert waits == [("tool", "t1.0.1", True), ("tool", "t1.0.0", False), ("agent", "t1", False)]
    assert states[-2:] == [one for one in states if isinstance(one, WaitingState)][-2:]


def test_texts_are_cut_and_an_artifact_is_named() -> None:
    story = RunStory()
    story.plan(planned("t1", SHOP, "t" * 700))
    story.start("t1")
    call_id = story.begin_call("t1", "shop.buy", {"what": "x" * 700})
    story.event("tool_result", name="n", call_id=call_id, result="r" * 700, status="succeeded", artifact="a" * 64)

    _, task, call, result, *_ = (one.state for one in states_of(story.document()))

    assert task == AgentCallState(agent_id=SHOP, message="t" * 600, correlation_id="t1")
    assert call == ToolCallState(
        id=call_id, function_name="shop.buy", arguments={"…": f'{{"what":"{"x" * 700}"}}'[:600]}
    )
    found = {"status": "succeeded", "content": "r" * 600, "artifact": "a" * 64}
    assert result == ToolResultState(tool_call_id=call_id, tool_name="shop.buy", result=found)
