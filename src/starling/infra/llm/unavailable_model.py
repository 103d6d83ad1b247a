"""A model that was named and can't be had."""

from dataclasses import dataclass
from typing import Never

from starling.core.errors import LLMServerError
from starling.core.llm import ModelReply, ModelRequest
from starling.infra.llm.chat_model import ReplyStream


@dataclass(frozen=True, slots=True)
class AbsentModel:
    """Refuses each request with the reason, so that the next model of its role is asked."""

    name: str
    reason: str
    remedy: str

    async def respond(self, request: ModelRequest) -> ModelReply:
        del request
        self._refuse()

    async def stream_respond(self, request: ModelRequest) -> ReplyStream:
        yield await self.respond(request)

    def _refuse(self) -> Never:
        raise LLMServerError(self.name, self.reason, self.remedy, status=404)
