"""The interface of the model adapters, and functions that they share."""

from collections.abc import AsyncGenerator
from typing import Protocol

from starling.core.errors import LLMInvalidResponse, ModelError
from starling.core.llm import FailedAttempt, ModelReply, ModelRequest, TextDelta
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
