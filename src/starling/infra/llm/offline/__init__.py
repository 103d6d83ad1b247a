"""`offline:rules`: a rule-based model, so that everything can be tried with no key and no network."""

from collections.abc import Mapping

from starling.core.json import canonical
from starling.core.llm import ModelReply, ModelRequest
from starling.infra.llm.offline.answer import answer_without_tools, compose_answer
from starling.infra.llm.offline.prompt_parsing import PromptSections
from starling.infra.llm.offline.review import review
from starling.infra.llm.offline.supervisor import decide
from starling.infra.llm.offline.tool_selection import select_calls

MODEL = "offline:rules"


class OfflineRules:
    """Answers the same requests that a language model gets, by the words and the shape of them.

    It plans by matching tools to the request, fills arguments by schema, reviews by comparing, and says what it
    can't do. The same request always gets the same answer; nothing is kept but caches.
    """

    async def answer(self, request: ModelRequest) -> ModelReply:
        """Return the whole answer. Never raises, whatever the request says."""
        reply = _answered(request)
        return ModelReply(
            reply.content, reply.tool_calls, model=MODEL, finish_reason="tool_calls" if reply.tool_calls else "stop"
        )


def _answered(request: ModelRequest) -> ModelReply:
    sections = PromptSections(request.messages)
    properties = request.response.schema.get("properties") if request.response else None
    wanted = frozenset(map(str, properties)) if isinstance(properties, Mapping) else frozenset[str]()
    if "selected_agents" in wanted:
        return ModelReply(canonical(decide(sections)))
    if {"status", "reasons"} <= wanted:
        return ModelReply(canonical(review(sections)))
    if request.response is not None:
        return ModelReply("{}", warnings=(f"{MODEL} doesn't know the document {request.response.name!r}.",))
    if request.tools:
        return select_calls(sections, request.messages, request.tools)
    return ModelReply(compose_answer(sections) if "results" in sections else answer_without_tools(sections))
