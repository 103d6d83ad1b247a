"""A conversation as a model is shown it."""

from collections.abc import Iterable
from typing import Final

from brain.conversation.states import AssistantMessageState, BaseState, UserMessageState, UserResponseState
from brain.state import Said

SHOWN: Final = (UserMessageState, UserResponseState, AssistantMessageState)
_CHARS = 2_000


def render(states: Iterable[BaseState]) -> tuple[Said, ...]:
    """Return what was said, each message cut at 2,000 characters; states of other kinds are left out."""
    return tuple(said for state in states if (said := _said(state)))


def _said(state: BaseState) -> Said | None:
    match state:
        case UserMessageState() | UserResponseState():
            return {"role": "user", "content": state.text[:_CHARS]}
        case AssistantMessageState():
            return {"role": "assistant", "content": state.content[:_CHARS]}
        case _:
            return None
