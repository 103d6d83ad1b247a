"""Adapter of `offline:rules`, the rule-based model."""

import re
from dataclasses import replace

from starling.core.json import canonical
from starling.core.llm import ModelReply, ModelRequest, TextDelta
from starling.infra.llm.chat_model import ReplyStream
from starling.infra.llm.endpoint_capabilities import Dialect
from starling.infra.llm.model_selection import OFFLINE
from starling.infra.llm.offline.designer import design
from starling.infra.llm.offline.matching import select_calls
from starling.infra.llm.offline.prompt_parsing import Element
from starling.infra.llm.offline.results import compose_answer, judge, review
from starling.infra.llm.offline.supervisor import decide

_DOCUMENTS = {"supervisor_decision": decide, "verdict": review, "designer": design, "judge": judge}
_WORD_GROUP = re.compile(r"\s*(?:\S+\s*){1,4}")
_NO_MODEL = "I can't do this: no language model is configured, and offline:rules only matches requests to tools."


class OfflineModel:
    """Answers the prompts that a language model gets by rules: the same request always gets the same answer."""

    name = OFFLINE
    lacking: Dialect = frozenset()

    async def respond(self, request: ModelRequest) -> ModelReply:
        prompt = Element({}, "\n".join(message.content for message in request.messages if message.role == "user"))
        if request.response is not None:
            document = _DOCUMENTS.get(request.response.name)
            return ModelReply(canonical(document(prompt)) if document else "{}", model=OFFLINE)
        if not request.tools:
            text = compose_answer(prompt) if "<results>" in prompt.raw else _NO_MODEL
            return ModelReply(text, model=OFFLINE)
        reply = select_calls(prompt, request.messages, request.tools)
        return replace(reply, model=OFFLINE, finish_reason="tool_calls" if reply.tool_calls else "stop")

    async def stream_respond(self, request: ModelRequest) -> ReplyStream:
        """Yield the text in groups of words, then the reply."""
        reply = await self.respond(request)
        for group in _WORD_GROUP.findall(reply.content):
            yield TextDelta(group)
        yield reply
