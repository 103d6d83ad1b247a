"""The interface of the model adapters, and functions that they share."""

from collections.abc import AsyncGenerator, Iterable
from dataclasses import replace
from typing import Final, Protocol

from starling.core.errors import LLMInvalidResponse, ModelError
from starling.core.llm import FailedAttempt, ModelReply, ModelRequest, ModelToolCall, TextDelta, TokenUsage
from starling.infra.fast_json import dumps
from starling.infra.llm.endpoint_capabilities import Dialect

type ReplyStream = AsyncGenerator[TextDelta | ModelReply, None]


class ChatModel(Protocol):
    """One model. Raises the four `ModelError` classes; does not retry."""

    @property
    def name(self) -> str:
        """`provider:model`."""
        ...

    @property
    def lacking(self) -> Dialect:
        """Features that the endpoint has refused, or is set to lack; requests do without them."""
        ...

    async def respond(self, request: ModelRequest) -> ModelReply:
        """Return the complete answer within `request.timeout` seconds."""
        ...

    def stream_respond(self, request: ModelRequest) -> ReplyStream:
        """Yield text as it arrives, then the complete `ModelReply`, within `request.timeout` seconds."""
        ...


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
    usage = TokenUsage(sent or _tokens(_sent(request)), written or _tokens(_written(reply)), estimated=True)
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


def _written(reply: ModelReply) -> Iterable[str | bytes]:
    yield reply.content
    yield reply.reasoning
    yield from _calls(reply.tool_calls)


def _calls(calls: Iterable[ModelToolCall]) -> Iterable[str | bytes]:
    for call in calls:
        yield call.name
        yield call.raw_arguments or dumps(call.arguments)


def _tokens(texts: Iterable[str | bytes]) -> int:
    length = sum(len(text.encode(errors="replace") if isinstance(text, str) else text) for text in texts)
    return -(-length // _BYTES_PER_TOKEN)
