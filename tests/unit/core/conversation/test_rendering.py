"""How models see a conversation: a call never without its result."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starling.core.conversation.rendering import POLICIES, apply_policy, register_policy, render_for_llm
from starling.core.conversation.states import (
    AgentCallState,
    AgentResultState,
    AskedCall,
    AssistantMessageState,
    BaseState,
    FinishedState,
    ToolCallState,
    ToolResultState,
    UserMessageState,
    WaitingState,
)
from starling.core.errors import InvalidRequestError

RESULT = {"status": "succeeded", "content": "18 degrees"}
SAID: tuple[BaseState, ...] = (
    UserMessageState(text="How\nwarm is it?"),
    AgentCallState(agent_id="crew", message="look", correlation_id="t1"),
    ToolCallState(id="t1.0.0", function_name="weather.now", arguments={"where": "Lima"}),
    WaitingState(kind="tool", correlation_id="t1.0.0"),
    ToolResultState(tool_call_id="t1.0.0", tool_name="weather.now", result=RESULT),
    AgentResultState(correlation_id="t1", result=RESULT),
    AssistantMessageState(content="18 degrees."),
    FinishedState(),
)
ASKED, REPLY = {"role": "user", "content": "How\nwarm is it?"}, {"role": "assistant", "content": "18 degrees."}


def call(name: str, function: str, arguments: dict[str, Any]) -> AskedCall:
    return {"id": name, "type": "function", "function": {"name": function, "arguments": json.dumps(arguments)}}


def pair(name: str, function: str, arguments: dict[str, Any]) -> list[dict[str, Any]]:
    calls = {"role": "assistant", "content": "", "tool_calls": [call(name, function, arguments)]}
    return [calls, {"role": "tool", "tool_call_id": name, "content": json.dumps(RESULT)}]


TOOL, AGENT = pair("t1.0.0", "weather_now", {"where": "Lima"}), pair("t1", "crew", {"message": "look"})


def test_calls_of_tools_and_agents_stand_with_their_results() -> None:
    assert render_for_llm(SAID) == [ASKED, *TOOL, *AGENT, REPLY]
    assert render_for_llm(SAID, exclude_types=[AgentCallState]) == [ASKED, *TOOL, REPLY]


@pytest.mark.parametrize(("last_n", "shown"), [(0, []), (2, [REPLY]), (3, [*AGENT, REPLY]), (4, [*AGENT, REPLY])])
def test_last_messages_split_no_call(last_n: int, shown: list[dict[str, Any]]) -> None:
    assert render_for_llm(SAID, last_n) == shown


def test_policies_show_what_they_say() -> None:
    lines = [f"{name}: {json.dumps(RESULT)}" for name in ('weather_now {"where": "Lima"}', 'crew {"message": "look"}')]
    collapsed = [{"role": "assistant", "content": line} for line in lines]

    assert render_for_llm(SAID, policy_name="tools_collapsed") == [ASKED, *collapsed, REPLY]
    assert render_for_llm(SAID, policy_name="summary")[0] == {"role": "user", "content": "How warm is it?"}
    assert render_for_llm(SAID, policy_name="none") == []
    assert apply_policy("last_n", [ASKED, REPLY], 1) == [REPLY]


def test_messages_alone_are_shown_as_earlier_versions_showed_them() -> None:
    long = [{"role": "user", "content": f"{number} {'x  ' * 300}"} for number in range(7)]

    assert apply_policy("last_messages", long, 5) == [
        {"role": "user", "content": one["content"][:600]} for one in long[2:]
    ]
    assert apply_policy("summary", long, 5) == [
        {"role": "user", "content": " ".join(one["content"].split())[:160]} for one in long
    ]


def test_calls_that_only_a_message_has_are_shown_with_their_results_and_left_out_without() -> None:
    states = [
        UserMessageState(text="Hi."),
        AssistantMessageState(content="Looking.", tool_calls=[call(name, "look", {}) for name in "ab"]),
        ToolResultState(tool_call_id="a", tool_name="look", result=RESULT),
    ]

    assert render_for_llm(states)[1:] == [{"role": "assistant", "content": "Looking."}, *pair("a", "look", {})]


def test_own_policy_can_be_registered_and_an_unknown_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("starling.core.conversation.rendering.POLICIES", {})

    @register_policy("results")
    def results(messages: Sequence[dict[str, Any]], **_: object) -> list[dict[str, Any]]:
        return [message for message in messages if message["role"] != "assistant"]

    assert render_for_llm(SAID, policy_name="results") == [ASKED]  # results without their calls are left out
    with pytest.raises(InvalidRequestError, match="There are: results"):
        render_for_llm(SAID, policy_name="another")


IDS = st.sampled_from("abcd")
ANY_STATE = st.one_of(
    st.builds(UserMessageState, text=st.text(max_size=3)),
    st.builds(ToolCallState, id=IDS, function_name=st.just("x.y"), arguments=st.just({})),
    st.builds(ToolResultState, tool_call_id=IDS, tool_name=st.just("x.y"), result=st.just(RESULT)),
    st.builds(AgentCallState, agent_id=st.just("crew"), message=st.just("m"), correlation_id=IDS),
    st.builds(AgentResultState, correlation_id=IDS, result=st.just(RESULT)),
    st.builds(
        AssistantMessageState,
        content=st.text(max_size=3),
        tool_calls=st.lists(IDS, unique=True, max_size=3).map(lambda ids: [call(name, "x", {}) for name in ids]),
    ),
)


@given(st.lists(ANY_STATE, max_size=12), st.none() | st.integers(0, 8), st.sampled_from(sorted(POLICIES)))
def test_whatever_is_rendered_has_no_call_without_its_result(
    states: list[BaseState], last_n: int | None, policy: str
) -> None:
    messages = render_for_llm(states, last_n, policy)

    assert last_n is None or len(messages) <= last_n
    unanswered: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            unanswered.remove(message["tool_call_id"])
        else:
            assert not unanswered
            unanswered = [one["id"] for one in message.get("tool_calls", ())]
    assert not unanswered
