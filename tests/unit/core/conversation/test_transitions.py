"""Which state may follow which."""

from collections.abc import Sequence

import pytest

from starling.core.conversation.states import (
    AgentResultState,
    AssistantMessageState,
    BaseState,
    FinishedState,
    ToolCallState,
    ToolResultState,
    UserMessageState,
    UserResponseState,
    WaitingState,
)
from starling.core.conversation.transitions import check, timed_out
from starling.core.errors import InvalidRequestError

HI, END = UserMessageState(text="Hi."), FinishedState()
CALL = ToolCallState(id="c", function_name="look", arguments={})
RESULT = ToolResultState(tool_call_id="c", tool_name="look", result={})
REPLY = AssistantMessageState(content="Hello.")
ASKING = AssistantMessageState(
    content="", tool_calls=[{"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}]
)
WAIT = WaitingState(kind="user_input", deadline=10.0, correlation_id="w")


class OwnState(BaseState):
    """A kind of another package."""


@pytest.mark.parametrize(
    ("before", "state"),
    [
        ([], END),
        ([HI], UserResponseState(text="Yes.")),
        ([HI, REPLY, END], REPLY),
        ([HI, REPLY, END], OwnState()),
        ([HI, CALL], END),
        ([HI, CALL], HI),
        ([HI], RESULT),
        ([HI, CALL, RESULT], RESULT),
        ([HI, CALL], AgentResultState(correlation_id="other", result={})),
    ],
)
def test_a_state_that_can_not_follow_is_refused(before: Sequence[BaseState], state: BaseState) -> None:
    with pytest.raises(InvalidRequestError):
        check(before, state)


@pytest.mark.parametrize(
    ("before", "state"),
    [
        ([HI, REPLY, END], HI),
        ([HI, ASKING], RESULT),
        ([HI, CALL, WAIT, CALL], RESULT),
        ([HI, REPLY, WAIT], UserResponseState(text="Yes.")),
        ([HI, WAIT], timed_out(WAIT, 10.0)),
        ([HI], OwnState()),
        ([HI, OwnState()], END),
    ],
)
def test_a_state_that_may_follow_is_taken(before: Sequence[BaseState], state: BaseState) -> None:
    check(before, state)


def test_a_wait_becomes_a_result_at_its_deadline() -> None:
    tool = WaitingState(kind="tool", deadline=10.0, correlation_id="c")

    assert timed_out(WAIT, 9.9) is WAIT
    late = timed_out(tool, 10.0)
    assert isinstance(late, ToolResultState)
    assert (late.tool_call_id, late.result["status"]) == ("c", "expired")
