"""Which state may follow which."""

from collections.abc import Mapping, Sequence
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

_WORK: Final = frozenset(
    {AssistantMessageState, ToolCallState, ToolResultState, AgentCallState, AgentResultState, WaitingState}
)
"""Within a turn agents work in parallel, so that what one does may follow what any other does."""

NEXT: Final[Mapping[type[BaseState] | None, frozenset[type[BaseState]]]] = {
    None: frozenset({UserMessageState, AssistantMessageState}),
    UserMessageState: _WORK | {UserMessageState, FinishedState},
    UserResponseState: _WORK | {FinishedState},
    AssistantMessageState: _WORK | {UserMessageState, UserResponseState, FinishedState},
    ToolCallState: _WORK,
    AgentCallState: _WORK,
    ToolResultState: _WORK | {UserMessageState, FinishedState},
    AgentResultState: _WORK | {UserMessageState, FinishedState},
    WaitingState: _WORK | {UserResponseState, FinishedState},
    FinishedState: frozenset({UserMessageState}),
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
    if (called := answered_call(state)) and not _is_open(before, called):
        raise InvalidRequestError(
            f"{kind.__name__} has no call {called!r} that waits for a result.", "Add the call before its result."
        )


def answered_call(state: BaseState) -> str | None:
    """Return the id of the call that a state is the result of, None for other kinds."""
    match state:
        case ToolResultState():
            return state.tool_call_id
        case AgentResultState():
            return state.correlation_id
        case _:
            return None


def calls_in(state: BaseState) -> list[str]:
    """Return the ids of the calls, and waits, that a state begins."""
    match state:
        case ToolCallState():
            return [state.id]
        case AgentCallState() | WaitingState():
            return [state.correlation_id or ""]
        case AssistantMessageState():
            return [str(call.get("id") or "") for call in state.tool_calls]
        case _:
            return []


def timed_out(waiting: WaitingState, now: float) -> BaseState:
    """Return a wait as it is at a time: past its deadline the result of what it waited for, which says so."""
    if waiting.deadline is None or now < waiting.deadline:
        return waiting
    result = {"status": "expired", "content": "No answer came before the deadline."}
    if waiting.kind == "tool":
        return ToolResultState(tool_call_id=waiting.correlation_id, tool_name="", result=result)
    return AgentResultState(correlation_id=waiting.correlation_id, result=result)


def _is_open(before: Sequence[BaseState], call: str) -> bool:
    for state in reversed(before):
        if answered_call(state) == call:
            return False
        if call in calls_in(state):
            return True
    return False
