"""What a model is asked and what it answers, whoever serves it."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, Protocol

from starling.core.json import JsonObject


class ModelRole(StrEnum):
    """What a call is for; settings map each role to a model and its fallbacks."""

    ROUTER = "router"
    REASONING = "reasoning"
    CODING = "coding"


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as a model sees it. `name` fits `[A-Za-z0-9_-]{1,64}`; `parameters` is a JSON schema."""

    name: str
    description: str
    parameters: JsonObject


@dataclass(frozen=True, slots=True)
class ModelToolCall:
    """One call that a model asked for. `arguments` is None where its text was no JSON object."""

    id: str
    name: str
    arguments: JsonObject | None
    raw_arguments: str = ""


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message. `tool_calls` goes with `assistant`, `tool_call_id` with `tool`."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    tool_calls: tuple[ModelToolCall, ...] = ()
    tool_call_id: str | None = None


@dataclass(frozen=True, slots=True)
class ResponseSchema:
    """The JSON schema that the whole answer has to fit."""

    name: str
    schema: JsonObject


@dataclass(frozen=True, slots=True)
class PromptVersion:
    """A prompt, and the digest of its text."""

    name: str
    version: str


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One request to the model of a role. `timeout` is seconds for the whole answer, fallbacks included.

    `prompt` says where the messages come from, for those who look at traces; the model doesn't see it. `model` is asked
    first, where it is set, and then those of the role.
    """

    role: ModelRole
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    response: ResponseSchema | None = None
    temperature: float = 0.0
    max_tokens: int | None = None
    timeout: float = 60.0
    prompt: PromptVersion | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens as the endpoint counted them; zero where it didn't say."""

    input_tokens: int = 0
    output_tokens: int = 0

    @property
    def total(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: "TokenUsage") -> "TokenUsage":
        return TokenUsage(self.input_tokens + other.input_tokens, self.output_tokens + other.output_tokens)


@dataclass(frozen=True, slots=True)
class ModelReply:
    """A whole answer. `model` is `provider:model` as it really answered, after fallbacks.

    `warnings` says what went wrong on the way: retries, fallbacks, a role that was downgraded.
    """

    content: str
    tool_calls: tuple[ModelToolCall, ...] = ()
    usage: TokenUsage = TokenUsage()
    model: str = ""
    finish_reason: str = "stop"
    warnings: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of text, as it came. `restart` means that earlier pieces were from a broken answer."""

    text: str
    restart: bool = False


class ModelClient(Protocol):
    """Asks models by role. Errors are the four `ModelError` classes, after retries and fallbacks."""

    async def respond(self, request: ModelRequest) -> ModelReply:
        """Return the whole answer."""
        ...

    def stream_respond(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelReply]:
        """Yield text as it comes; the last item is the whole `ModelReply`, usage included."""
        ...

    def describe(self, role: ModelRole) -> str:
        """Return `provider:model` of the model that a role asks first."""
        ...
