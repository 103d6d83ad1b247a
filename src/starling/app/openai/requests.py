"""Requests of OpenAI's APIs: what is read of them, and what is refused. All other fields are ignored."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from starling.app.threads import ThreadName
from starling.core.conversation.openai_messages import AssistantMessage, ChatMessage, UserMessage
from starling.core.errors import NotFoundError
from starling.core.json import as_items, as_object
from starling.core.runs import INSTRUCTIONS_CHARS
from starling.infra.postgres.runs.acceptance import IdempotencyKey

_TEXT_TYPES: Final = frozenset({"text", "input_text", "output_text"})
_SKIPPED_ITEMS: Final = frozenset({"reasoning"})  # of earlier answers of other servers
_CONTENT_SCHEMA: Final[dict[str, Any]] = {
    "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}, {"type": "null"}],
    "description": "A text, or parts with `type` and `text`.",
}


class ModelNotFoundError(NotFoundError):
    """There is no such model for the caller."""

    code = "model_not_found"

    def __init__(self, name: str) -> None:
        super().__init__("model", name, "`GET /v1/models` lists the models that your key may use.")


@dataclass(frozen=True, slots=True)
class Sending:
    """What of a request isn't in its body. `retried`: it was sent before; `own_key`: the client chose the key."""

    idempotency: IdempotencyKey
    thread: str | None
    retried: bool
    own_key: bool


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
    def text(self) -> str:
        """What the user says now."""
        return "\n\n".join(message.text for message in self.said).strip()


def _content_text(content: object) -> object:
    """Return the text of a message's content. Raises ValueError for parts that aren't text."""
    if not isinstance(content, list):
        return "" if content is None else content
    parts = [as_object(part) for part in as_items(cast("object", content))]
    for part in parts:
        if part.get("type") not in _TEXT_TYPES or not isinstance(part.get("text"), str):
            raise ValueError(f"parts of the type {part.get('type')!r} are not supported: send text")
    return "\n".join(part["text"] for part in parts)


def _refused(value: object) -> None:
    if value not in (None, False, 0, [], {}, ""):
        raise ValueError("is not supported by this server: leave it out")


def _text_only(value: object) -> None:
    if as_object(value).get("type", "text") != "text" or not isinstance(value, dict | None):
        raise ValueError("only the type `text` is supported by this server")


type _Content = Annotated[str, BeforeValidator(_content_text), WithJsonSchema(_CONTENT_SCHEMA)]
type _Refused = Annotated[Any, AfterValidator(_refused), Field(description="Not supported.")]
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


def _checked(messages: Sequence[GivenMessage]) -> Sequence[GivenMessage]:
    """Return messages that can be answered. Raises ValueError."""
    _, said = _parted(messages)
    if not any(message.text.strip() for message in said):
        raise ValueError("the last message must be one of the user, with a text")
    if len(_instructions_in(messages)) > INSTRUCTIONS_CHARS:
        raise ValueError(f"system and developer texts may have {INSTRUCTIONS_CHARS} characters together")
    return messages


def _instructions_in(messages: Sequence[GivenMessage]) -> str:
    return "\n\n".join(one.content for one in messages if one.role in ("system", "developer")).strip()


def _parted(messages: Sequence[GivenMessage]) -> tuple[list[ChatMessage], list[ChatMessage]]:
    """Return the messages up to the last one of the assistant, and those after it."""
    found = [message for one in messages if (message := one.as_thread_message())]
    last = max((index for index, one in enumerate(found, 1) if isinstance(one, AssistantMessage)), default=0)
    return found[:last], found[last:]


class Metadata(BaseModel):
    """Anything; `thread_id` names the thread of the conversation."""

    model_config = ConfigDict(extra="allow")

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


class ChatCompletionRequest(_Request):
    """A request of the chat API. Fields that aren't listed, such as `temperature`, are accepted and ignored."""

    messages: Annotated[list[GivenMessage], AfterValidator(_checked), Field(min_length=1)]
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1, le=1)] | None = 1
    functions: _Refused = None
    logprobs: _Refused = None
    top_logprobs: _Refused = None
    audio: _Refused = None
    modalities: Annotated[list[Literal["text"]] | None, Field(description="Only text.")] = None
    web_search_options: _Refused = None
    response_format: _Format = None

    def asked(self, sending: Sending) -> ChatRequest:
        """Return what is asked."""
        return _asked(self, self.messages, sending, _instructions_in(self.messages))


class InputItem(GivenMessage):
    """An item of a response's input: a message, or what is skipped."""

    type: Annotated[Literal["message", "reasoning"] | None, Field(description="`reasoning` is skipped.")] = "message"
    role: Literal["system", "developer", "user", "assistant"] = "user"  # pyright: ignore[reportIncompatibleVariableOverride]


def _input_items(given: object) -> object:
    return [{"role": "user", "content": given}] if isinstance(given, str) else given


class TextOptions(BaseModel):
    """The form of the text."""

    format: _Format = None


class ResponseRequest(_Request):
    """A request of the responses API. Fields that aren't listed, such as `temperature`, are accepted and ignored."""

    input: Annotated[
        list[InputItem],
        BeforeValidator(_input_items),
        AfterValidator(_checked),
        Field(min_length=1),
        WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}]}),
    ]
    instructions: Annotated[str | None, Field(max_length=INSTRUCTIONS_CHARS)] = None
    previous_response_id: Annotated[str | None, Field(max_length=200)] = None
    background: bool | None = False
    text: TextOptions | None = None
    conversation: _Refused = None
    prompt: _Refused = None

    def asked(self, sending: Sending, previous: str | None) -> ChatRequest:
        """Return what is asked; `previous` is the run of `previous_response_id`."""
        messages = [one for one in self.input if one.type not in _SKIPPED_ITEMS]
        texts = filter(None, (self.instructions, _instructions_in(messages)))
        asked = _asked(self, messages, sending, "\n\n".join(texts)[:INSTRUCTIONS_CHARS])
        return replace(asked, previous=previous, background=bool(self.background))


def _asked(request: _Request, messages: Sequence[GivenMessage], sending: Sending, instructions: str) -> ChatRequest:
    named = request.metadata.thread_id if request.metadata else None
    before, said = _parted(messages)
    user, thread = request.user or "", sending.thread or named
    return ChatRequest(request.model, before, said, instructions or None, user, thread, sending)
