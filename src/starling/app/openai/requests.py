"""Requests of OpenAI's APIs: what is read of them, and what is refused. All other fields are ignored."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Final, Literal, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, PlainValidator, TypeAdapter, ValidationInfo

from starling.app.threads import ThreadName
from starling.core.conversation.openai_messages import AssistantMessage, ChatMessage, UserMessage
from starling.core.errors import NotFoundError
from starling.core.json import as_items, as_object
from starling.core.runs import INSTRUCTIONS_CHARS
from starling.infra.postgres.runs.acceptance import IdempotencyKey

_LIST: Final[Any] = Field(min_length=1, max_length=3_000, fail_fast=True)
_TEXT_TYPES: Final = frozenset({"text", "input_text", "output_text"})


class ModelNotFoundError(NotFoundError):
    """There is no such model for the caller; `reason` says why an agent can't work."""

    code = "model_not_found"

    def __init__(self, name: str, reason: str = "") -> None:
        super().__init__("model", name, f"{reason} `GET /v1/models` lists the models that your key may use.".lstrip())


@dataclass(frozen=True, slots=True)
class Sending:
    """What of a request isn't in its body. `retried`: it was sent before."""

    idempotency: IdempotencyKey
    thread: str | None
    retried: bool


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A request of either API.

    `before` are the messages up to the last one of the assistant, `said` those of the user after it. `previous` is the
    run of the response that it continues, empty for one that no run has.
    """

    model: str
    before: Sequence[ChatMessage]
    said: Sequence[ChatMessage]
    instructions: str | None
    user: str
    thread: str | None
    sending: Sending
    previous: str | None = None
    background: bool = False

    @property
    def exact_text(self) -> str:
        """What the user says now, to the character."""
        return "\n\n".join(message.text for message in self.said)

    @property
    def text(self) -> str:
        """What the user says now, without white space around it."""
        return self.exact_text.strip()


def _content_text(content: object) -> object:
    """Return the text of a message's content. Raises ValueError for parts that aren't text."""
    if not isinstance(content, list):
        return "" if content is None else content
    parts = [as_object(part) for part in as_items(cast("object", content))]
    for part in parts:
        if part.get("type") not in _TEXT_TYPES or not isinstance(part.get("text"), str):
            raise ValueError(f"parts of the type {part.get('type')!r} are not supported: send text")
    return "\n".join(part["text"] for part in parts)


def refused[Value](value: Value) -> Value:
    """Return a value that says nothing. Raises ValueError for another one."""
    if value not in (None, False, 0, [], ""):  # `{}` says something: `web_search_options: {}` asks for a search
        raise ValueError("is not supported by this server: leave it out")
    return value


def _text_only(value: object) -> None:
    if as_object(value).get("type", "text") != "text" or not isinstance(value, dict | None):
        raise ValueError("only the type `text` is supported by this server")


type _Content = Annotated[
    str,
    BeforeValidator(_content_text, json_schema_input_type=str | list[dict[str, Any]] | None),
    Field(description="A text, or parts with `type` and `text`."),
]
type _Refused = Annotated[Any, AfterValidator(refused), Field(description="Not supported.")]
type _Format = Annotated[Any, AfterValidator(_text_only), Field(description="Only `text`.")]


class GivenMessage(BaseModel):
    """A message of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: _Content = ""

    def as_thread_message(self) -> ChatMessage | None:
        """Return the message as a thread has it, None for instructions and for results of another server's tools."""
        match self.role:
            case "user":
                return UserMessage(role="user", content=self.content)
            case "assistant":
                return AssistantMessage(role="assistant", content=self.content)
            case _:
                return None


@dataclass(frozen=True, slots=True)
class Conversation:
    """The messages up to the last one of the assistant, those of the user after it, and the instructions."""

    before: Sequence[ChatMessage]
    said: Sequence[ChatMessage]
    instructions: str


type _Messages = Annotated[list[GivenMessage], _LIST]


def _conversation(read: TypeAdapter[list[GivenMessage]], given: object, info: ValidationInfo) -> Conversation:
    """Return a conversation that can be answered; a field `instructions` before it counts. Raises ValueError."""
    messages = read.validate_python(given)
    found = [message for one in messages if (message := one.as_thread_message())]
    last = max((index for index, one in enumerate(found, 1) if isinstance(one, AssistantMessage)), default=0)
    if not any(message.text.strip() for message in found[last:]):
        raise ValueError("the last message must be one of the user, with a text")
    texts = [info.data.get("instructions"), *(it.content for it in messages if it.role in ("system", "developer"))]
    instructions = "\n\n".join(filter(None, texts)).strip()
    if len(instructions) > INSTRUCTIONS_CHARS:
        raise ValueError(f"system and developer texts may have {INSTRUCTIONS_CHARS} characters together")
    return Conversation(found[:last], found[last:], instructions)


class Metadata(BaseModel, extra="allow"):
    """Anything; `thread_id` names the thread of the conversation."""

    thread_id: ThreadName | None = None


class StreamOptions(BaseModel):
    """With `include_usage` the chunk before the last line has the usage."""

    include_usage: bool | None = False


class _Request(BaseModel):
    """What requests of both APIs have in common."""

    model: Annotated[str, Field(min_length=1, max_length=200)]
    stream: bool | None = False
    user: str | None = None
    metadata: Metadata | None = None
    tools: _Refused = None
    top_logprobs: _Refused = None


class ChatCompletionRequest(_Request):
    """A request of the chat API. Fields that aren't listed, such as `temperature`, are accepted and ignored."""

    messages: Annotated[
        Conversation,
        PlainValidator(partial(_conversation, TypeAdapter(_Messages)), json_schema_input_type=_Messages),
    ]
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1, le=1)] | None = 1
    functions: _Refused = None
    logprobs: _Refused = None
    audio: _Refused = None
    modalities: Annotated[list[Literal["text"]], Field(fail_fast=True)] | None = Field(None, description="Only text.")
    web_search_options: _Refused = None
    response_format: _Format = None

    def asked(self, sending: Sending) -> ChatRequest:
        """Return what is asked."""
        return _asked(self, self.messages, sending)


class InputItem(GivenMessage):
    """An item of a response's input."""

    type: Literal["message"] | None = "message"
    role: Literal["system", "developer", "user", "assistant"] = "user"  # pyright: ignore[reportIncompatibleVariableOverride]


def _input_items(given: object) -> object:
    """Return the messages of an input, without the reasoning of earlier answers of other servers."""
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    items = as_items(given)
    return [item for item in items if as_object(item).get("type") != "reasoning"] if items else given


class TextOptions(BaseModel):
    """The form of the text."""

    format: _Format = None


class ResponseRequest(_Request):
    """A request of the responses API. Fields that aren't listed, such as `temperature`, are accepted and ignored."""

    instructions: Annotated[str | None, Field(max_length=INSTRUCTIONS_CHARS)] = None
    input: Annotated[
        Conversation,
        PlainValidator(partial(_conversation, TypeAdapter(Annotated[list[InputItem], _LIST]))),
        BeforeValidator(_input_items, json_schema_input_type=str | list[dict[str, Any]]),
    ]
    previous_response_id: Annotated[str | None, Field(max_length=200)] = None
    background: bool | None = False
    text: TextOptions | None = None
    include: Annotated[list[Literal["reasoning.encrypted_content"]], Field(fail_fast=True)] | None = Field(
        None, description="Accepted for clients that keep no state; no reasoning is returned."
    )
    conversation: _Refused = None
    prompt: _Refused = None

    def asked(self, sending: Sending, previous: str | None) -> ChatRequest:
        """Return what is asked; `previous` is the run of `previous_response_id`."""
        return replace(_asked(self, self.input, sending), previous=previous, background=bool(self.background))


def _asked(request: _Request, sent: Conversation, sending: Sending) -> ChatRequest:
    named = request.metadata.thread_id if request.metadata else None
    user, thread = request.user or "", sending.thread or named
    return ChatRequest(request.model, sent.before, sent.said, sent.instructions or None, user, thread, sending)
