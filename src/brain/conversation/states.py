"""The kinds of states on a branch, the envelope that they are stored in, and how models see them."""

import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Final, Literal

from brain.prompts import Xml, element, lines
from brain.state import ConversationMessage
from starling.core.errors import InvalidRequestError
from starling.core.json import storable

_COMPRESSED_FROM = 2_048  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseState:
    """What all states share. A change of shape takes the next `version`."""

    version: ClassVar[int] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class UserMessageState(BaseState):
    """A message of the user."""

    text: str
    meta: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UserResponseState(BaseState):
    """The user's answer to a question."""

    text: str
    meta: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantMessageState(BaseState):
    """A message of the platform, and the calls that it asked for."""

    content: str
    tool_calls: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    meta: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCallState(BaseState):
    """A task given to an agent."""

    agent_id: str
    message: str
    correlation_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentResultState(BaseState):
    """The result of a task; `score` rates it from 0 to 1."""

    correlation_id: str
    result: dict[str, Any]
    score: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingState(BaseState):
    """The run waits, until `deadline` (seconds since the epoch)."""

    kind: Literal["tool", "agent", "llm", "user_input"]
    deadline: float
    correlation_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedState(BaseState):
    """The end of a run; the thread takes further input."""


KINDS: dict[str, type[BaseState]] = {
    kind.__name__: kind
    for kind in (
        UserMessageState,
        UserResponseState,
        AssistantMessageState,
        AgentCallState,
        AgentResultState,
        WaitingState,
        FinishedState,
    )
}


@dataclass(frozen=True, slots=True)
class Envelope:
    """A state as it is stored: version, type, seconds since the epoch, JSON in UTF-8, zlib over it from 2 KiB on."""

    v: int
    t: str
    ts: float
    data: bytes
    compressed: bool


def encode(state: BaseState, ts: float) -> Envelope:
    """Put a state into its envelope; what Postgres can't hold is replaced."""
    data = json.dumps(storable(asdict(state)), ensure_ascii=False, separators=(",", ":")).encode()
    compressed = len(data) > _COMPRESSED_FROM
    return Envelope(state.version, type(state).__name__, ts, zlib.compress(data) if compressed else data, compressed)


def decode(envelope: Envelope) -> BaseState:
    """Take a state out of its envelope. Raises InvalidRequestError for one that this version doesn't know."""
    kind = KINDS.get(envelope.t)
    if kind is None or envelope.v != kind.version:
        raise InvalidRequestError(
            f"The stored state {envelope.t!r} of version {envelope.v} isn't known to this version of Starling.",
            "Upgrade Starling: the state was written by a newer one.",
        )
    data = zlib.decompress(envelope.data) if envelope.compressed else envelope.data
    return kind(**json.loads(data))


SHOWN: Final = (UserMessageState, UserResponseState, AssistantMessageState)
_CHARS = 2_000
_LAST_CHARS = 600
_SUMMARY_CHARS = 160

type RenderPolicy = Callable[[Sequence[ConversationMessage], int], Sequence[ConversationMessage]]
"""Returns the messages that an agent sees, oldest first; the number is how many it has room for."""


def render(states: Iterable[BaseState]) -> tuple[ConversationMessage, ...]:
    """Return the messages, each message cut at 2,000 characters; states of other kinds are left out."""
    messages: list[ConversationMessage] = []
    for state in states:
        if isinstance(state, (UserMessageState, UserResponseState)):
            messages.append({"role": "user", "content": state.text[:_CHARS]})
        elif isinstance(state, AssistantMessageState):
            messages.append({"role": "assistant", "content": state.content[:_CHARS]})
    return tuple(messages)


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
