"""The conversation of a thread as supervisors are shown it."""

from collections.abc import Iterable

from brain.prompts import Xml, element, lines
from brain.state import ConversationMessage
from starling.core.conversation.states import AssistantMessageState, BaseState, UserMessageState, UserResponseState

_CHARS = 2_000


def history_messages(states: Iterable[BaseState]) -> tuple[ConversationMessage, ...]:
    """Return what was said, each message cut at 2,000 characters; states of other kinds are left out."""
    return tuple(
        ConversationMessage(role="assistant", content=state.content[:_CHARS])
        if isinstance(state, AssistantMessageState)
        else ConversationMessage(role="user", content=state.text[:_CHARS])
        for state in states
        if isinstance(state, (UserMessageState, UserResponseState, AssistantMessageState))
    )


def history_lines(messages: Iterable[ConversationMessage]) -> Xml:
    """Return messages as a prompt's elements, one a line."""
    return lines(element("message", message["content"], role=message["role"]) for message in messages)
