"""Which state may follow which."""

from collections.abc import Mapping, Sequence, Set
from typing import Final

from starling.core.conversation.states import (
    AgentCallState,
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
from starling.core.errors import InvalidRequestError

# Within a turn agents work in parallel, so that what one does may follow what any other does.
_CALLS: Final = {AssistantMessageState, ToolCallState, ToolResultState, AgentCallState, AgentResultState, WaitingState}
_DONE: Final = _CALLS | {UserMessageState, FinishedState}

NEXT: Final[Mapping[type[BaseState] | None, Set[type[BaseState]]]] = {
    None: {UserMessageState, AssistantMessageState},
    UserMessageState: _DONE,
    UserResponseState: _CALLS | {FinishedState},
    AssistantMessageState: _DONE | {UserResponseState},
    ToolCallState: _CALLS,
    AgentCallState: _CALLS,
    ToolResultState: _DONE,
    AgentResultState: _DONE,
    WaitingState: _CALLS | {UserResponseState, FinishedState},
    FinishedState: {UserMessageState},
}
"""The kinds that may follow a kind, or begin a conversation. Kinds of other packages may follow, and be followed by,
anything but an end."""


def check(before: Sequence[BaseState], state: BaseState) -> None:
    """Raise InvalidRequestError for a state that can't follow those before it, oldest first."""
    last, kind = type(before[-1]) if before else None, type(state)
    known = kind in NEXT and last in NEXT
    if kind not in NEXT[last] if known else last is FinishedState:
        place = f"after {last.__name__}" if last else "at the beginning"
        names = ", ".join(sorted(one.__name__ for one in NEXT[last]))
        raise InvalidRequestError(f"{kind.__name__} can't be {place}.", f"There may be: {names}.")
    if (called := answered_call(state)) is None:
        return
    same = next((one for one in reversed(before) if called in (answered_call(one), *calls_in(one))), None)
    if same is None or answered_call(same) is not None:
        why = f"{kind.__name__} has no call {called!r} that waits for a result."
        raise InvalidRequestError(why, "Add the call before its result.")


def answered_call(state: BaseState) -> str | None:
    """Return the id of the call that a state is the result of, None for other kinds."""
    if isinstance(state, ToolResultState):
        return state.tool_call_id
    return state.correlation_id if isinstance(state, AgentResultState) else None


def calls_in(state: BaseState) -> list[str]:
    """Return the ids of the calls, and waits, that a state begins."""
    if isinstance(state, ToolCallState):
        return [state.id]
    if isinstance(state, (AgentCallState, WaitingState)):
        return [state.correlation_id or ""]
    return [call["id"] for call in state.tool_calls] if isinstance(state, AssistantMessageState) else []


def timed_out(state: BaseState, now: float) -> BaseState:
    """Return the last state of a line as it is at a time: a wait past its deadline is a result that says so."""
    if not isinstance(state, WaitingState) or state.deadline is None or now < state.deadline:
        return state
    result = {"status": "expired", "content": "No answer came before the deadline."}
    if state.kind == "tool":
        return ToolResultState(tool_call_id=state.correlation_id, tool_name="", result=result)
    return AgentResultState(correlation_id=state.correlation_id, result=result)
