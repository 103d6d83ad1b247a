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
"""The policies by name; those of installed packages are added when a name isn't there."""


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
    messages = list(_messages([state for state in states if not isinstance(state, tuple(exclude_types))]))
    return apply_policy(policy_name, messages if last_n is None else _last(messages, last_n), last_n)


def apply_policy(name: str, messages: Sequence[Any], last_n: int | None = None) -> list[Message]:
    """Return messages as a policy shows them, without what it left of a call or a result alone. Raises as above."""
    if name not in POLICIES:
        load_extensions()
    if name not in POLICIES:
        raise InvalidRequestError(f"There is no render policy {name!r}.", f"There are: {', '.join(sorted(POLICIES))}.")
    return [message for group in _groups(POLICIES[name](messages, last_n=last_n)) for message in group]


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


def _messages(states: Sequence[BaseState]) -> Iterator[Message]:
    """Yield the messages of states, each call with its result."""
    results, calls = _pairs(states)
    for index, state in enumerate(states):
        match state:
            case UserMessageState() | UserResponseState():
                yield {"role": "user", "content": state.text}
            case AssistantMessageState():
                answered = [call for call in state.tool_calls if (index, call.get("id")) in results]
                if state.content or answered:
                    yield _assistant(state.content, answered)
                yield from (_tool(results[index, call["id"]]) for call in answered)
            case ToolResultState() | AgentResultState() if index in calls:
                yield _assistant("", [_call(calls[index])])
                yield _tool(state)
            case _:
                pass


def _pairs(states: Sequence[BaseState]) -> tuple[dict[tuple[int, str], BaseState], dict[int, BaseState]]:
    """Return the results of the calls in assistants' messages by message and call, and the calls of other results."""
    results: dict[tuple[int, str], BaseState] = {}
    calls: dict[int, BaseState] = {}
    announced: dict[str, int] = {}
    begun: dict[str, BaseState] = {}
    for index, state in enumerate(states):
        match state:
            case UserMessageState():  # a new turn, whose calls may have the names of earlier ones
                announced, begun = {}, {}
            case AssistantMessageState():
                announced |= {str(call["id"]): index for call in state.tool_calls if "id" in call}
            case ToolCallState():
                begun[state.id] = state
            case AgentCallState():
                begun[state.correlation_id or ""] = state
            case ToolResultState() | AgentResultState():
                name = answered_call(state) or ""
                call = begun.pop(name, None)
                if name in announced:
                    results[announced.pop(name), name] = state
                elif call:
                    calls[index] = call
            case _:
                pass
    return results, calls


def _assistant(content: str, calls: Sequence[Message] = ()) -> Message:
    return {"role": "assistant", "content": content} | ({"tool_calls": list(calls)} if calls else {})


def _call(state: BaseState) -> Message:
    if isinstance(state, ToolCallState):
        name, called, arguments = state.id, state.function_name, state.arguments
    else:
        assert isinstance(state, AgentCallState)
        name, called, arguments = state.correlation_id, state.agent_id, {"message": state.message}
    function = {"name": _NOT_IN_A_NAME.sub("_", called), "arguments": json.dumps(arguments, ensure_ascii=False)}
    return {"id": name, "type": "function", "function": function}


def _tool(state: BaseState) -> Message:
    assert isinstance(state, (ToolResultState, AgentResultState))
    content = json.dumps(state.result, ensure_ascii=False)
    return {"role": "tool", "tool_call_id": answered_call(state), "content": content}


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
