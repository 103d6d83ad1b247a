"""The kinds of states of a conversation, and the envelope that they are stored in."""

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from importlib.metadata import entry_points
from typing import Any, ClassVar, Final, Literal, TypedDict

from starling.core.errors import InvalidRequestError
from starling.core.json import storable

EXTENSIONS: Final = "starling.states"
"""The group of entry points that name further kinds of states, or modules that register render policies."""

_COMPRESSED_FROM: Final = 2_048  # bytes


@dataclass(frozen=True, slots=True)
class BaseState:
    """What all states share. A change of shape takes the next `__version__`, and a migration of the one before."""

    __version__: ClassVar[int] = 1


@dataclass(frozen=True, slots=True)
class UserMessageState(BaseState):
    """A message of the user."""

    text: str
    meta: str | None = None


@dataclass(frozen=True, slots=True)
class UserResponseState(BaseState):
    """The user's answer to a question."""

    text: str
    meta: str | None = None


class AskedFunction(TypedDict):
    """A function that a message asks for, with its arguments as JSON text."""

    name: str
    arguments: str


class AskedCall(TypedDict):
    """A call that a message asks for, as OpenAI has it."""

    id: str
    type: Literal["function"]
    function: AskedFunction


@dataclass(frozen=True, slots=True)
class AssistantMessageState(BaseState):
    """A message of the platform, and the calls that it asked for."""

    content: str
    tool_calls: list[AskedCall] = field(default_factory=list[AskedCall])
    meta: str | None = None


@dataclass(frozen=True, slots=True)
class ToolCallState(BaseState):
    """A call of a tool."""

    id: str
    function_name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ToolResultState(BaseState):
    """The result of a tool call: `status`, `content` and maybe `artifact`; `reward` rates it from 0 to 1."""

    tool_call_id: str
    tool_name: str
    result: dict[str, Any]
    reward: float | None = None


@dataclass(frozen=True, slots=True)
class AgentCallState(BaseState):
    """A task given to an agent."""

    agent_id: str
    message: str
    correlation_id: str | None = None


@dataclass(frozen=True, slots=True)
class AgentResultState(BaseState):
    """The result of a task; `score` rates it from 0 to 1."""

    correlation_id: str
    result: dict[str, Any]
    score: float | None = None


@dataclass(frozen=True, slots=True)
class WaitingState(BaseState):
    """The run waits, until `deadline` (seconds since the epoch) where there is one."""

    kind: Literal["tool", "agent", "llm", "user_input"]
    deadline: float | None = None
    correlation_id: str = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class FinishedState(BaseState):
    """The end of a run; the thread takes further input."""


KINDS: Final[dict[str, type[BaseState]]] = {
    kind.__name__: kind
    for kind in (
        *(UserMessageState, UserResponseState, AssistantMessageState, ToolCallState, ToolResultState),
        *(AgentCallState, AgentResultState, WaitingState, FinishedState),
    )
}
"""The kinds by name; those of installed packages are added when a name isn't there."""

type Migration = Callable[[dict[str, Any]], dict[str, Any]]
_MIGRATIONS: Final[dict[tuple[str, int], Migration]] = {}


def migration(t: str, v: int) -> Callable[[Migration], Migration]:
    """Register a function that makes the fields of version `v + 1` of a kind from those of version `v`."""

    def register(function: Migration) -> Migration:
        _MIGRATIONS[t, v] = function
        return function

    return register


@cache
def load_extensions() -> None:
    """Add what installed packages name in the group `starling.states`, once."""
    for entry in entry_points(group=EXTENSIONS):
        found: object = entry.load()
        if isinstance(found, type) and issubclass(found, BaseState):
            KINDS[found.__name__] = found


@dataclass(frozen=True, slots=True)
class Envelope:
    """States as they are stored: version, type, seconds since the epoch, JSON in UTF-8, zlib over it from 2 KiB on.

    `length` is how many states it has: one, but for a turn (`starling.core.conversation.turn`).
    """

    v: int
    t: str
    ts: float
    data: bytes
    compressed: bool
    length: int = 1


def envelope(v: int, t: str, ts: float, content: object, length: int = 1) -> Envelope:
    """Put JSON into an envelope; what Postgres can't hold is replaced."""
    data = json.dumps(storable(content), ensure_ascii=False, separators=(",", ":")).encode()
    compressed = len(data) > _COMPRESSED_FROM
    return Envelope(v, t, ts, zlib.compress(data) if compressed else data, compressed, length)


def content_of(stored: Envelope) -> Any:
    """Return the JSON in an envelope."""
    return json.loads(zlib.decompress(stored.data) if stored.compressed else stored.data)


def encode(state: BaseState, ts: float) -> Envelope:
    """Put a state into its envelope."""
    return envelope(state.__version__, type(state).__name__, ts, fields_of(state))


def decode(stored: Envelope) -> BaseState:
    """Take a state out of its envelope. Raises InvalidRequestError for one that this version doesn't know."""
    return state_of(stored.t, stored.v, content_of(stored))


def fields_of(state: BaseState) -> dict[str, Any]:
    """Return the fields of a state by name, without those that have their default."""
    pairs = ((name, getattr(state, name), default) for name, default in _defaults(type(state)))
    return {name: value for name, value, default in pairs if value != default}


def state_of(t: str, v: int, data: Mapping[str, Any]) -> BaseState:
    """Return the state of a kind from its stored fields, migrated to the version of now. Raises as `decode`."""
    if t not in KINDS:
        load_extensions()
    kind = KINDS.get(t)
    while kind is not None and v < kind.__version__ and (migrate := _MIGRATIONS.get((t, v))):
        data, v = migrate(dict(data)), v + 1
    if kind is None or v != kind.__version__:
        raise InvalidRequestError(
            f"The stored state {t!r} of version {v} isn't known to this version of Starling.",
            "Upgrade Starling, or install the package that has this kind.",
        )
    return kind(**data)


@cache
def _defaults(kind: type[BaseState]) -> Sequence[tuple[str, object]]:
    """Return the names of a kind's fields, each with its default, or what equals nothing."""
    return [
        (one.name, one.default if one.default_factory is MISSING else one.default_factory()) for one in fields(kind)
    ]
