"""Wrapper that reads what a model writes: reasoning is split off, and tool calls in the text become tool calls."""

from contextlib import aclosing
from dataclasses import replace

from starling.core.llm import ModelReply, ModelRequest, TextDelta
from starling.core.model_output.json_document import last_object
from starling.core.model_output.reasoning import ReasoningSplitter, SplitAnswer, split_reasoning
from starling.core.model_output.reasoning_markers import begins_inside_reasoning, keeps_markers
from starling.core.model_output.text_tool_calls import OfferedTools, calls_in_text, readable_calls
from starling.infra.llm.chat_model import ChatModel, ReplyStream, checked_reply, with_usage


class OutputReader:
    """One model whose replies hold no reasoning in their text, no tool call that was written as text, and a usage.

    The model's name and, from then on, its latest complete answer in words say whether text begins inside of reasoning,
    which the chat template began and no server split off. If so, streams are held back until its end, and an answer
    that was cut off before it is reasoning. If a JSON answer was requested and only reasoning came, it raises
    LLMInvalidResponse.
    """

    def __init__(self, inner: ChatModel) -> None:
        self.name = inner.name
        self._inner = inner
        self._begins_inside = begins_inside_reasoning(inner.name)

    async def respond(self, request: ModelRequest) -> ModelReply:
        """Return the complete answer within `request.timeout` seconds."""
        begins_inside = self._begins_inside
        return self._read(await self._inner.respond(self._own(request)), request, begins_inside)

    async def stream_respond(self, request: ModelRequest) -> ReplyStream:
        """Yield text as it arrives, then the complete reply, within `request.timeout` seconds.

        `restart` says that the text so far was reasoning. With tools the text is held: a call may begin anywhere.
        """
        begins_inside, held = self._begins_inside, ""
        splitter = ReasoningSplitter(held=begins_inside)
        async with aclosing(self._inner.stream_respond(self._own(request))) as items:
            async for item in items:
                if isinstance(item, TextDelta):
                    reply, pieces = None, splitter.feed(item.text)
                else:
                    reply, pieces = self._read(item, request, begins_inside), splitter.finish(cut=_is_cut(item))
                for piece in pieces:
                    if piece.kind == "retraction":
                        held = ""
                        yield TextDelta("", restart=True)
                    elif piece.kind == "text" and request.tools:
                        held += piece.text
                    elif piece.kind == "text":
                        yield TextDelta(piece.text)
                if reply:
                    if held and (shown := reply.content if reply.tool_calls else held):
                        yield TextDelta(shown)
                    yield reply
                    return

    def _own(self, request: ModelRequest) -> ModelRequest:
        """Return the request without the reasoning of other models."""
        own = (
            message
            if message.reasoning is None or message.reasoning.model == self.name
            else replace(message, reasoning=None)
            for message in request.messages
        )
        return replace(request, messages=tuple(own))

    def _learn(self, reply: ModelReply, request: ModelRequest, split: SplitAnswer) -> None:
        """Remember whether this answer began inside of reasoning, if it shows that."""
        if split.began_inside:
            self._begins_inside = True
        elif reply.reasoning:
            self._begins_inside = False
        elif reply.finish_reason != "length":
            in_words = bool(reply.content.strip()) and request.response is None  # some suppress reasoning for a schema
            self._begins_inside = self._begins_inside and not (split.reasoning or in_words)

    def _read(self, reply: ModelReply, request: ModelRequest, begins_inside: bool) -> ModelReply:
        reply = with_usage(reply, request)
        split = split_reasoning(reply.content, begins_inside=begins_inside, cut=_is_cut(reply))
        self._learn(reply, request, split)
        content, reasoning = split.text, "\n\n".join(part for part in (reply.reasoning, split.reasoning) if part)
        if request.response is not None and not content and reasoning.startswith("{") and reasoning.endswith("}"):
            content, reasoning = reasoning, ""  # some servers take an answer without reasoning for reasoning
        elif request.response is not None and not content and (content := last_object(reply.content)):
            reasoning = reasoning.partition(content)[0].strip()  # it was not closed before the answer
        field = reply.reasoning_field or ("content" if split.reasoning and keeps_markers(self.name) else "")
        read = replace(reply, content=content, reasoning=reasoning, reasoning_field=field if reasoning else "")
        if reply.tool_calls:
            read = replace(read, tool_calls=readable_calls(reply.tool_calls, request.tools))
        elif request.tools:
            content, calls = calls_in_text(content, OfferedTools.of(request))
            if calls:
                read = replace(read, content=content, tool_calls=calls, finish_reason="tool_calls")
        if request.response is not None and not (content.strip() or read.tool_calls):
            read = replace(read, reasoning="")  # reasoning alone isn't an answer
        return checked_reply(read, request)


def _is_cut(reply: ModelReply) -> bool:
    """Whether the token limit may have cut off reasoning in the text: what a server splits off is not in it."""
    return reply.finish_reason == "length" and not reply.reasoning
