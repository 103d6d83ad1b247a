"""`offline:rules`: a rule-based model for use without API key and network.

Pipeline: `prompt_parsing` reads the sections of the prompt; `supervisor` splits the request (`request_splitting`) and
ranks the agents for each part by TF-IDF (`agent_ranking`); `tool_selection` ranks tools and fills their arguments
(`arguments`, slot filling by JSON schema); `review` and `answer` check and format results. Shared text processing:
`tokenization` (stems, stop words), `value_extraction` (paths, numbers, dates, places), `write_intent` (imperatives).
"""

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
    """Answers the prompts that a language model gets, by rules.

    Deterministic: the same request always gets the same answer. The only state is caches.
    """

    async def answer(self, request: ModelRequest) -> ModelReply:
        """Return the complete answer. Never raises."""
        reply = _reply(request)
        return ModelReply(
            reply.content, reply.tool_calls, model=MODEL, finish_reason="tool_calls" if reply.tool_calls else "stop"
        )


def _reply(request: ModelRequest) -> ModelReply:
    sections = PromptSections(request.messages)
    properties = request.response.schema.get("properties") if request.response else None
    fields = frozenset(map(str, properties)) if isinstance(properties, Mapping) else frozenset[str]()
    if "selected_agents" in fields:
        return ModelReply(canonical(decide(sections)))
    if {"status", "reasons"} <= fields:
        return ModelReply(canonical(review(sections)))
    if request.response is not None:
        return ModelReply("{}", warnings=(f"{MODEL} does not support the response schema {request.response.name!r}.",))
    if request.tools:
        return select_calls(sections, request.messages, request.tools)
    return ModelReply(compose_answer(sections) if "results" in sections else answer_without_tools(sections))
