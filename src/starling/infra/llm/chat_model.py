"""The interface of the model adapters, and functions that they share."""

import contextlib
import math
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Final, Literal, Protocol

from starling.core.clock import SystemClock
from starling.core.errors import LLMInvalidResponse, LLMServerError, ModelError
from starling.core.llm import FailedAttempt, ModelReply, ModelRequest, ModelToolCall, TextDelta, TokenUsage
from starling.core.text import one_line
from starling.infra.fast_json import dumps
from starling.infra.llm.endpoint_capabilities import Dialect, EndpointFeatures

type ReplyStream = AsyncGenerator[TextDelta | ModelReply, None]

_REMEDIES = {
    401: "Check the API key.",
    403: "Check that the API key permits this model.",
    404: "Check the model's name and the base URL.",
    429: "The rate limit of the endpoint is reached; try again later.",
}
_REASON_CHARS = 300


@dataclass(frozen=True, slots=True)
class ModelName:
    """A model name in the settings. The part after the provider may contain colons and slashes."""

    provider: str
    model: str

    def __str__(self) -> str:
        return f"{self.provider}:{self.model}"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An OpenAI-compatible endpoint; `/chat/completions`, or `/responses`, is appended to `base_url`.

    Features in `lacks` are not tried.
    """

    base_url: str
    api_key: str = ""
    api: Literal["chat_completions", "responses"] = "chat_completions"
    lacks: Dialect = frozenset()


class ChatModel(Protocol):
    """One model. Raises the four `ModelError` classes; does not retry."""

    @property
    def name(self) -> str:
        """`provider:model`."""
        ...

    async def respond(self, request: ModelRequest) -> ModelReply:
        """Return the complete answer within `request.timeout` seconds."""
        ...

    def stream_respond(self, request: ModelRequest) -> ReplyStream:
        """Yield text as it arrives, then the complete `ModelReply`, within `request.timeout` seconds."""
        ...


class ModelAdapter(ChatModel, Protocol):
    """A model whose output is not read yet, with the `features` of its endpoint."""

    features: EndpointFeatures


def report_failed_attempt(request: ModelRequest, error: ModelError, warning: str = "") -> None:
    """Report a failed attempt to the caller of `request`; `warning` is for the user, at once."""
    if request.on_failed_attempt is not None:
        request.on_failed_attempt(FailedAttempt(error.model, error.code, error.reason, warning))


def checked_reply(reply: ModelReply, request: ModelRequest) -> ModelReply:
    """Return `reply`.

    Raises LLMInvalidResponse if a JSON answer was requested and is empty or was cut off by the token limit.
    """
    if request.response is None or reply.tool_calls:
        return reply
    if reply.finish_reason == "length":
        raise LLMInvalidResponse(
            reply.model,
            f"the answer was cut off at the token limit ({reply.usage.output_tokens} tokens were written).",
            "Raise limits.max_output_tokens or ask for less.",
            written=reply.content,
        )
    if not (reply.content.strip() or reply.reasoning):
        raise LLMInvalidResponse(reply.model, "the answer is empty although a JSON object was requested.")
    return reply


_BYTES_PER_TOKEN: Final = 4  # of UTF-8 text: about right for English and code, and for scripts of three bytes a sign


def with_usage(reply: ModelReply, request: ModelRequest) -> ModelReply:
    """Return the reply with an estimate of each count that the endpoint did not report although there is text."""
    sent, written = reply.usage.input_tokens, reply.usage.output_tokens
    if sent and written:
        return reply
    parts = (reply.content, reply.reasoning, *_calls(reply.tool_calls))
    usage = TokenUsage(sent or _tokens(_sent(request)), written or _tokens(parts), estimated=True)
    return reply if (usage.input_tokens, usage.output_tokens) == (sent, written) else replace(reply, usage=usage)


def _sent(request: ModelRequest) -> Iterable[str | bytes]:
    for message in request.messages:
        yield message.content
        yield from _calls(message.tool_calls)
    for tool in request.tools:
        yield tool.name
        yield tool.description
        yield dumps(tool.parameters)
    if request.response is not None:
        yield dumps(request.response.schema)


def _calls(calls: Iterable[ModelToolCall]) -> Iterable[str | bytes]:
    for call in calls:
        yield call.name
        yield call.raw_arguments or dumps(call.arguments)


def _tokens(texts: Iterable[str | bytes]) -> int:
    length = sum(len(text.encode(errors="replace") if isinstance(text, str) else text) for text in texts)
    return -(-length // _BYTES_PER_TOKEN)


def status_failure(model: str, status: int, text: str, retry_after: str | None) -> LLMServerError:
    """Return the error for an HTTP error status; `text` is from its body, without secrets."""
    reason = f"the endpoint answered {status}: {shortened(text)}" if text else f"the endpoint answered {status}."
    seconds = _retry_after_seconds(retry_after)
    return LLMServerError(model, reason, _REMEDIES.get(status, ""), status=status, retry_after=seconds)


shortened = partial(one_line, limit=_REASON_CHARS)  # for a message


def excerpt(data: bytes) -> str:
    """Return the beginning of an arbitrary body, for a message."""
    return shortened(data[:1_000].decode("utf-8", "replace"))


def _retry_after_seconds(retry_after: str | None) -> float | None:
    """Return the seconds of a Retry-After header, which may be a number or a date; None for anything else."""
    if retry_after is None:
        return None
    with contextlib.suppress(ValueError):
        seconds = float(retry_after)
        return max(0.0, seconds) if math.isfinite(seconds) else None
    try:
        return max(0.0, (parsedate_to_datetime(retry_after) - SystemClock().now()).total_seconds())
    except (ValueError, TypeError):  # not a date, or one without a zone
        return None
