"""Adapter of `offline:rules`, the rule-based model."""

import re
from dataclasses import replace

from starling.core.llm import ModelReply, ModelRequest, TextDelta
from starling.infra.llm.chat_model import ReplyStream
from starling.infra.llm.endpoint_capabilities import Dialect
from starling.infra.llm.model_selection import OFFLINE
from starling.infra.llm.offline import OfflineRules

_WORD_GROUP = re.compile(r"\s*(?:\S+\s*){1,4}")


class OfflineModel:
    """Answers by rules, without network access; its text is streamed in groups of words."""

    name = OFFLINE
    lacking: Dialect = frozenset()

    def __init__(self, rules: OfflineRules) -> None:
        self._rules = rules

    async def respond(self, request: ModelRequest) -> ModelReply:
        return replace(await self._rules.answer(request), model=self.name)

    async def stream_respond(self, request: ModelRequest) -> ReplyStream:
        reply = await self.respond(request)
        for group in _WORD_GROUP.findall(reply.content):
            yield TextDelta(group)
        yield reply
