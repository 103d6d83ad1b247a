"""A conversation as a model is shown it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from brain.conversation.states import AssistantMessageState, BaseState, UserMessageState, UserResponseState
from brain.state import Said

SHOWN: Final = (UserMessageState, UserResponseState, AssistantMessageState)
_CHARS = 2_000
_LAST_CHARS = 600
_SUMMARY_CHARS = 160

type RenderPolicy = Callable[[Sequence[Said], int], Sequence[Said]]
"""Makes of what was said, oldest first, what an agent with room for so many messages is shown."""


def render(states: Iterable[BaseState]) -> tuple[Said, ...]:
    """Return what was said, each message cut at 2,000 characters; states of other kinds are left out."""
    return tuple(said for state in states if (said := _said(state)))


def last_messages(messages: Sequence[Said], count: int) -> Sequence[Said]:
    """Show the last messages, each cut at 600 characters."""
    return [_cut(said, _LAST_CHARS) for said in messages[-count:]] if count else []


def none(messages: Sequence[Said], count: int) -> Sequence[Said]:
    """Show nothing of the conversation."""
    del messages, count
    return []


def summary(messages: Sequence[Said], count: int) -> Sequence[Said]:
    """Show all that the run knows of the conversation, of each message its beginning in one line."""
    del count
    return [_cut({**said, "content": " ".join(said["content"].split())}, _SUMMARY_CHARS) for said in messages]


POLICIES: Final[Mapping[str, RenderPolicy]] = {"last_messages": last_messages, "none": none, "summary": summary}


def _cut(said: Said, chars: int) -> Said:
    return {"role": said["role"], "content": said["content"][:chars]}


def _said(state: BaseState) -> Said | None:
    match state:
        case UserMessageState() | UserResponseState():
            return {"role": "user", "content": state.text[:_CHARS]}
        case AssistantMessageState():
            return {"role": "assistant", "content": state.content[:_CHARS]}
        case _:
            return None
