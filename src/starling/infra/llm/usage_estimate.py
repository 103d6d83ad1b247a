"""Token counts of endpoints that report none: estimated, so that budgets hold for their models too."""

from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import replace
from typing import Final

from starling.core.llm import ModelReply, ModelRequest, ModelToolCall, TokenUsage
from starling.infra.fast_json import dumps
from starling.infra.llm.chat_model import ChatModel, ReplyStream
from starling.infra.llm.endpoint_capabilities import Dialect

_BYTES_PER_TOKEN: Final = 4  # of UTF-8 text: about right for English and code, and for scripts of three bytes a sign


class EstimatedUsage:
    """Passes requests to `inner` and estimates the tokens of answers whose usage the endpoint did not report."""

    def __init__(self, inner: ChatModel) -> None:
        self.name = inner.name
        self._inner = inner

    @property
    def lacking(self) -> Dialect:
        """Features that the endpoint has refused, or is set to lack; requests do without them."""
        return self._inner.lacking

    async def respond(self, request: ModelRequest) -> ModelReply:
        """Return the complete answer within `request.timeout` seconds."""
        return _with_usage(await self._inner.respond(request), request)

    async def stream_respond(self, request: ModelRequest) -> ReplyStream:
        """Yield text as it arrives, then the complete reply, within `request.timeout` seconds."""
        async with aclosing(self._inner.stream_respond(request)) as items:
            async for item in items:
                yield _with_usage(item, request) if isinstance(item, ModelReply) else item


def _with_usage(reply: ModelReply, request: ModelRequest) -> ModelReply:
    """Return the reply with an estimate of each count that is zero although there is text."""
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
