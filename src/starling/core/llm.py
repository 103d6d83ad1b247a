"""Model requests and replies, the same for all providers, and the `ModelClient` port."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any, Literal, Protocol, Self

from starling.core.clock import Deadline
from starling.core.json import JsonObject


class ModelRole(StrEnum):
    """Purpose of a model call; settings map each role to a model and its fallbacks."""

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
    """A tool call that a model requested. `arguments` is None if its text is not a JSON object."""

    id: str
    name: str
    arguments: JsonObject | None
    raw_arguments: str = ""


@dataclass(frozen=True, slots=True)
class ReturnedReasoning:
    """Reasoning that an endpoint wants back with the tool calls that it led to; only `model` is sent it.

    `field` is the member of the message that it was in: `content` if the model wrote it into its text.
    """

    text: str
    field: str
    model: str


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message. `tool_calls` is used with role `assistant`, `tool_call_id` with role `tool`."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    tool_calls: tuple[ModelToolCall, ...] = ()
    tool_call_id: str | None = None
    reasoning: ReturnedReasoning | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ResponseSchema:
    """JSON schema that the whole answer must match."""

    name: str
    schema: JsonObject


@dataclass(frozen=True, slots=True)
class PromptVersion:
    """The wording of a prompt: `hash` is the digest of its text.

    Where it comes from Langfuse, `version` and `label` are those that it has there, under `remote_name`.
    """

    name: str
    hash: str
    source: Literal["langfuse", "local"] = "local"
    version: int | None = None
    label: str | None = None
    remote_name: str = ""

    def to_json(self) -> JsonObject:
        """Return what steps and runs name of it."""
        return {name: value for name, value in asdict(self).items() if value or name != "remote_name"}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Return what `to_json` gave; what a later version added is left out."""
        return cls(**{one.name: document[one.name] for one in fields(cls) if one.name in document})


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """A request that an endpoint failed or refused while its call may still be answered by a further attempt.

    `code` and `reason` are those of its error. `warning` is set if the user is to be warned at once, before a wait.
    """

    model: str
    code: str
    reason: str
    warning: str = ""


@dataclass(frozen=True, slots=True)
class ModelWait:
    """How a run waits for models that fail for now: for `seconds` from the first failure on, at most until `deadline`.

    `outages` has the end of that time for each model that failed, for all calls of the run, until it answers. `warn`
    is given what the user is told before a wait; `sleep` waits, and may raise where the run is to go on elsewhere.
    """

    seconds: float
    deadline: Deadline
    outages: dict[str, Deadline]
    warn: Callable[[str], None]
    sleep: Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One request to the model of a role. `timeout` is in seconds, for the whole answer with its fallbacks.

    `prompt` names the prompt of the messages, for traces and steps only. If `model` is set, it is tried before the
    models of the role. `on_failed_attempt` is called at each failed attempt, before the wait for the next one; it is
    not part of the request's value. `tool_names` has the tool of each other name that a model may write, in the plain
    form of `model_output.names`. A request of a `supervisor` goes to the models that are set for it, in place of those
    of the role `reasoning`. Without `downgrades` no model of the router is asked in place of one that fails.
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
    on_failed_attempt: Callable[[FailedAttempt], None] | None = field(default=None, compare=False, repr=False)
    wait: ModelWait | None = field(default=None, compare=False, repr=False)  # without it, no model is waited for
    tool_names: Mapping[str, str] = field(default_factory=dict[str, str])
    supervisor: bool = False
    downgrades: bool = True

    def prompt_named(self) -> JsonObject:
        """Return the member of a step's metadata that names the prompt; none where there is no prompt."""
        return {"prompt": self.prompt.to_json()} if self.prompt else {}


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Token counts that the endpoint reported; `estimated` if some are an estimate, because it reported none."""

    input_tokens: int = 0
    output_tokens: int = 0
    estimated: bool = False

    @property
    def total(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: "TokenUsage") -> "TokenUsage":
        return TokenUsage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.estimated or other.estimated,
        )


@dataclass(frozen=True, slots=True)
class ModelReply:
    """A complete answer. `model` is the `provider:model` that answered, after fallbacks.

    `warnings` lists the retries, fallbacks and downgrades of the role that were needed. `reasoning` is what the model
    wrote before its answer; `reasoning_field` names the member of the message in which its API wants it back.
    """

    content: str
    tool_calls: tuple[ModelToolCall, ...] = ()
    usage: TokenUsage = TokenUsage()
    model: str = ""
    finish_reason: str = "stop"
    warnings: tuple[str, ...] = field(default=())
    reasoning: str = ""
    reasoning_field: str = ""

    @property
    def returned_reasoning(self) -> ReturnedReasoning | None:
        """The reasoning as the next message of a tool loop returns it, None where no API asks for it."""
        if not (self.tool_calls and self.reasoning and self.reasoning_field):
            return None
        return ReturnedReasoning(self.reasoning, self.reasoning_field, self.model)


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of streamed text. `restart`: discard the earlier pieces, they belong to a broken answer."""

    text: str
    restart: bool = False


class ModelClient(Protocol):
    """Calls models by role. Raises the four `ModelError` classes, after retries and fallbacks."""

    async def respond(self, request: ModelRequest) -> ModelReply:
        """Return the complete answer."""
        ...

    def stream_respond(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelReply]:
        """Yield text as it arrives; the last item is the complete `ModelReply`."""
        ...

    def describe(self, role: ModelRole, *, supervisor: bool = False) -> str:
        """Return `provider:model` of the model that a role, or a supervisor in it, asks first."""
        ...
