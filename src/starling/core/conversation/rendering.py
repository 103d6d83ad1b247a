"""How models see a conversation: messages as OpenAI has them, and the policies that shorten them."""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Final

from starling.core.conversation.states import (
    AgentCallState,
    AgentResultState,
    AssistantMessageState,
    BaseState,
    ToolCallState,
    ToolResultState,
    UserMessageState,
    UserResponseState,
    load_extensions,
)
from starling.core.conversation.transitions import answered_call
from starling.core.conversation.turn import PlacedState
from starling.core.errors import InvalidRequestError

type Message = dict[str, Any]
type RenderPolicy = Callable[..., Sequence[Message]]
"""Returns the messages to show of those given, oldest first. Its keyword `last_n` is how many there is room for."""

_MESSAGES: Final = 10
_LAST_CHARS: Final = 600
_SUMMARY_CHARS: Final = 160
_ARGUMENT_CHARS: Final = 80
_NOT_IN_A_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")

POLICIES: Final[dict[str, RenderPolicy]] = {}
"""The policies by name; those of installed packages are added by `is_policy`."""


def render_for_llm(
    stack: Iterable[BaseState | PlacedState],
    last_n: int | None = None,
    policy_name: str = "full",
    exclude_types: Collection[type[BaseState]] = (),
) -> list[Message]:
    """Return states as messages, oldest first: at most the last `last_n`, as a policy shows them.

    A call and its result stand together, where the result is; a call without one is left out.
    Raises InvalidRequestError for an unknown policy.
    """
    states = [item.state if isinstance(item, PlacedState) else item for item in stack]
    messages = list(_messages(state for state in states if not isinstance(state, tuple(exclude_types))))
    return apply_policy(policy_name, messages if last_n is None else _last(messages, last_n), last_n)


def apply_policy(name: str, messages: Sequence[Any], last_n: int | None = None) -> list[Message]:
    """Return messages as a policy shows them, without what it left of a call or a result alone. Raises as above."""
    if not is_policy(name):
        raise InvalidRequestError(f"There is no render policy {name!r}.", f"There are: {', '.join(sorted(POLICIES))}.")
    return [message for group in _groups(POLICIES[name](messages, last_n=last_n)) for message in group]


def is_policy(name: str) -> bool:
    """Return whether there is a policy of a name, also in an installed package."""
    if name not in POLICIES:
        load_extensions()
    return name in POLICIES


def register_policy[P: RenderPolicy](name: str) -> Callable[[P], P]:
    """Register a function as the policy of a name."""

    def register(policy: P) -> P:
        POLICIES[name] = policy
        return policy

    return register


@register_policy("full")
def full(messages: Sequence[Message], **_: object) -> Sequence[Message]:
    """Show everything as it is."""
    return messages


@register_policy("last_n")
def last_messages_whole(messages: Sequence[Message], last_n: int | None = None) -> Sequence[Message]:
    """Show the last messages as they are."""
    return _last(messages, _MESSAGES if last_n is None else last_n)


@register_policy("last_messages")
def last_messages(messages: Sequence[Message], last_n: int | None = None) -> Sequence[Message]:
    """Show the last messages, each cut at 600 characters."""
    return [_cut(message, _LAST_CHARS) for message in last_messages_whole(messages, last_n)]


@register_policy("none")
def none(messages: Sequence[Message], **_: object) -> Sequence[Message]:
    """Show nothing of the conversation."""
    del messages
    return []


@register_policy("tools_collapsed")
def tools_collapsed(messages: Sequence[Message], **_: object) -> Sequence[Message]:
    """Show each call with the beginning of its result in one line of the assistant's message."""
    return [_collapsed(group) if len(group) > 1 else group[0] for group in _groups(messages)]


@register_policy("summary")
def summary(messages: Sequence[Message], **_: object) -> Sequence[Message]:
    """Show of each message its beginning in one line, calls collapsed."""
    lines = ({**message, "content": " ".join(message["content"].split())} for message in tools_collapsed(messages))
    return [_cut(message, _SUMMARY_CHARS) for message in lines]


def _messages(states: Iterable[BaseState]) -> Iterator[Message]:
    """Yield the messages of states, each call before its result."""
    calls: dict[str, Message] = {}
    for state in states:
        match state:
            case UserMessageState() | UserResponseState():
                if isinstance(state, UserMessageState):  # a new turn, whose calls may have the names of earlier ones
                    calls = {}
                yield {"role": "user", "content": state.text}
            case AssistantMessageState():
                calls |= {call["id"]: {**call} for call in state.tool_calls}
                if state.content:
                    yield {"role": "assistant", "content": state.content}
            case ToolCallState():
                calls[state.id] = _call(state.id, state.function_name, state.arguments)
            case AgentCallState(correlation_id=str(name)):
                calls[name] = _call(name, state.agent_id, {"message": state.message})
            case ToolResultState() | AgentResultState() if call := calls.pop(answered_call(state) or "", None):
                yield {"role": "assistant", "content": "", "tool_calls": [call]}
                result = json.dumps(state.result, ensure_ascii=False)
                yield {"role": "tool", "tool_call_id": answered_call(state), "content": result}
            case _:
                pass


def _call(name: str, called: str, arguments: Message) -> Message:
    text = json.dumps(arguments, ensure_ascii=False)
    return {"id": name, "type": "function", "function": {"name": _NOT_IN_A_NAME.sub("_", called), "arguments": text}}


def _groups(messages: Iterable[Message]) -> Iterator[list[Message]]:
    """Yield messages by themselves, and those with calls together with all results; what lacks its part is left out."""
    group: list[Message] = []
    missing: set[str] = set()
    for message in messages:
        name = message.get("tool_call_id")
        if message["role"] != "tool":
            calls = message.get("tool_calls", ())
            group, missing = [message], {call["id"] for call in calls}
        elif name in missing:
            group.append(message)
            missing.discard(name)
        else:
            continue
        if not missing:
            yield group


def _last(messages: Sequence[Message], count: int) -> list[Message]:
    """Return the last messages, at most `count`, no call without its results."""
    shown: list[Message] = []
    for group in reversed(list(_groups(messages))):
        if len(shown) + len(group) > count:
            break
        shown[:0] = group
    return shown


def _collapsed(group: Sequence[Message]) -> Message:
    answers = {message["tool_call_id"]: message["content"] for message in group[1:]}
    lines = [group[0]["content"]] if group[0]["content"] else []
    for call in group[0]["tool_calls"]:
        function = call["function"]
        lines.append(
            f"{function['name']} {function['arguments'][:_ARGUMENT_CHARS]}: {answers[call['id']][:_SUMMARY_CHARS]}"
        )
    return {"role": "assistant", "content": "\n".join(lines)}


def _cut(message: Message, chars: int) -> Message:
    return {**message, "content": message["content"][:chars]}
