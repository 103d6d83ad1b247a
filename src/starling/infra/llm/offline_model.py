"""Adapter of `offline:rules`, the rule-based model, with its review of attempts and its final answer."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from starling.core.json import canonical
from starling.core.llm import ModelReply, ModelRequest, TextDelta
from starling.infra.llm.chat_model import ReplyStream
from starling.infra.llm.endpoint_capabilities import Dialect
from starling.infra.llm.model_selection import OFFLINE
from starling.infra.llm.offline.decisions import decide, select_calls
from starling.infra.llm.offline.designer import design
from starling.infra.llm.offline.texts import Element, leaves, parse_json, values_of

_NO_MODEL = "I can't do this: no language model is configured, and offline:rules only matches requests to tools."
_NO_JUDGE = "No language model is configured, and offline:rules can't judge texts: use a criterion of another kind."
_ERROR = re.compile(
    r"\W*(?:[\w.]*(?:error|exception)|fatal|traceback|failed|unable to|cannot|no such)\b", re.IGNORECASE
)
_ERROR_KEY = re.compile(r"(?:is)?(?:error|exception)s?\b", re.IGNORECASE)
_JSON_WORDS = {"True": "yes", "False": "no", "None": "none"}
_SHOWN_CHARS, _ANSWER_CHARS = 200, 1_200


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
            text = _answer(prompt) if "<results>" in prompt.raw else _NO_MODEL
            return ModelReply(text, model=OFFLINE)
        reply = select_calls(prompt, request.messages, request.tools)
        return replace(reply, model=OFFLINE, finish_reason="tool_calls" if reply.tool_calls else "stop")

    async def stream_respond(self, request: ModelRequest) -> ReplyStream:
        """Yield the text, then the reply."""
        reply = await self.respond(request)
        if reply.content:
            yield TextDelta(reply.content)
        yield reply


def _review(prompt: Element) -> dict[str, Any]:
    """Return the verdict on an attempt: its calls have to be about all values that the task names."""
    output = prompt.child("output").text
    objections = list(_objections(prompt.child("task").text, prompt.child("tool_calls").children("call"), output))
    return {
        "status": "REJECTED" if objections else "APPROVED",
        "reasons": objections or ["The calls are about all that the task names."],
        "evidence": [line[:_SHOWN_CHARS] for line in output.splitlines()[:1] if line],
    }


def _judge(prompt: Element) -> dict[str, Any]:
    """Return that no criterion is met: what only words say can't be judged by rules."""
    criteria = prompt.child("criteria").children("criterion")
    return {"met": [], "not_met": [one.get("id") for one in criteria], "reason": _NO_JUDGE}


_DOCUMENTS = {"supervisor_decision": decide, "verdict": _review, "designer": design, "judge": _judge}


def _objections(task: str, calls: Sequence[Element], output: str) -> Iterator[str]:
    results = [(call.get("name"), call.get("status"), call.child("result").text) for call in calls]
    good = {name for name, status, result in results if status == "succeeded" and not _fault(result)}
    yield from filter(None, [_fault(output)])
    yield from ["No tool was called, so nothing supports the output."] * (not calls)
    yield from (f"{name} failed: {result[:_SHOWN_CHARS]}" for name, _, result in results if name not in good)
    given = [leaf for call in calls for leaf in leaves(parse_json(call.child("arguments").text))]
    known = "\n".join([f"{key} {leaf}" for key, leaf in given] + [result for _, _, result in results])
    for value in values_of(task):
        if not any(form in known for form in (str(value.value), value.text)):
            yield f"No call is about {value.text}."


def _fault(text: str) -> str:
    """Return why a text is not a result: it is empty or an error."""
    data, line = parse_json(text), text[:_SHOWN_CHARS].partition("\n")[0]
    if text.casefold() in ("", "null", "none") or (data is not None and not any(leaves(data))):
        return "The output is empty."
    failed = any(leaf and _ERROR_KEY.match(key) for key, leaf in leaves(data)) if data else _ERROR.match(line)
    return f"This is an error: {text[:_SHOWN_CHARS]}" if failed else ""


def _answer(prompt: Element) -> str:
    """Return the answer with the results and missing parts."""
    results = [(item.text, item.get("citation")) for item in prompt.child("results").children("result")]
    texts = [f"{_readable(text)} [{citation}]" for text, citation in results if text]
    degraded = [f"- {item.text} ({item.get('reason')})" for item in prompt.child("degraded").children("part")]
    parts = [("\n".join(f"- {one}" for one in texts) if len(texts) > 1 else "".join(texts)) or "There is no result."]
    parts += ["\n".join(["Not answered:", *degraded])] * bool(degraded)
    return "\n\n".join(parts)


def _readable(text: str) -> str:
    """Return a result as text: JSON as `name: value`, shortened."""
    data = parse_json(text)
    pairs = [(key.replace("_", " "), _JSON_WORDS.get(str(leaf), str(leaf))) for key, leaf in leaves(data)]
    full = text if data is None else "; ".join(f"{key}: {leaf}" if key else leaf for key, leaf in pairs)
    return full if len(full) <= _ANSWER_CHARS else f"{full[:_ANSWER_CHARS].rstrip()} … (shortened)"
