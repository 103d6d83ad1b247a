"""Conversations as models see them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from brain.conversation.states import AssistantMessageState, BaseState, UserMessageState, UserResponseState
from brain.prompts import Xml, element, lines
from brain.state import ConversationMessage

SHOWN: Final = (UserMessageState, UserResponseState, AssistantMessageState)
_CHARS = 2_000
_LAST_CHARS = 600
_SUMMARY_CHARS = 160

type RenderPolicy = Callable[[Sequence[ConversationMessage], int], Sequence[ConversationMessage]]
"""Returns the messages that an agent sees, oldest first; the number is how many it has room for."""


def render(states: Iterable[BaseState]) -> tuple[ConversationMessage, ...]:
    """Return the messages, each message cut at 2,000 characters; states of other kinds are left out."""
    return tuple(message for state in states if (message := _message(state)))


def history_lines(messages: Iterable[ConversationMessage]) -> Xml:
    """Return messages as a prompt's elements, one a line."""
    return lines(element("message", message["content"], role=message["role"]) for message in messages)


def last_messages(messages: Sequence[ConversationMessage], count: int) -> Sequence[ConversationMessage]:
    """Show the last messages, each cut at 600 characters."""
    return [_cut(message, _LAST_CHARS) for message in messages[-count:]] if count else []


def none(messages: Sequence[ConversationMessage], count: int) -> Sequence[ConversationMessage]:
    """Show nothing of the conversation."""
    del messages, count
    return []


def summary(messages: Sequence[ConversationMessage], count: int) -> Sequence[ConversationMessage]:
    """Show all that the run knows of the conversation, of each message its beginning in one line."""
    del count
    return [_cut({**message, "content": " ".join(message["content"].split())}, _SUMMARY_CHARS) for message in messages]


POLICIES: Final[Mapping[str, RenderPolicy]] = {"last_messages": last_messages, "none": none, "summary": summary}


def _cut(message: ConversationMessage, chars: int) -> ConversationMessage:
    return {"role": message["role"], "content": message["content"][:chars]}


def _message(state: BaseState) -> ConversationMessage | None:
    match state:
        case UserMessageState() | UserResponseState():
            return {"role": "user", "content": state.text[:_CHARS]}
        case AssistantMessageState():
            return {"role": "assistant", "content": state.content[:_CHARS]}
        case _:
            return None
