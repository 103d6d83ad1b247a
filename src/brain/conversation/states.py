"""The kinds of states on a branch, and the envelope that they are stored in."""

import json
import zlib
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal

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
class ToolCallState(BaseState):
    """A tool call."""

    id: str
    function_name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResultState(BaseState):
    """The result of a tool call; `reward` rates it from 0 to 1."""

    tool_call_id: str
    tool_name: str
    result: dict[str, Any]
    reward: float | None = None


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
        ToolCallState,
        ToolResultState,
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
