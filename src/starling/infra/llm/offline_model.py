"""Adapter of `offline:rules`, the rule-based model: its design of a team, its review of attempts and its final answer.

A design has a member for each server that serves a part, and no examples: these rules would try only themselves.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from html import escape
from itertools import islice
from typing import Any

from starling.core.json import canonical
from starling.core.llm import ModelReply, ModelRequest, TextDelta, ToolSpec
from starling.infra.llm.chat_model import ReplyStream
from starling.infra.llm.endpoint_capabilities import Dialect
from starling.infra.llm.model_selection import OFFLINE
from starling.infra.llm.offline_decisions import decide, definition, select_calls, slots_of
from starling.infra.llm.offline_texts import Element, leaves, masked, opening, parse_json, stems, values_of

_NO_MODEL = "I can't do this: no language model is configured, and offline:rules only matches requests to tools."
_NO_JUDGE = "No language model is configured, and offline:rules can't judge texts: use a criterion of another kind."
_ERROR = re.compile(
    r"\W*(?:[\w.]*(?:error|exception)|fatal|traceback|failed|unable to|cannot|no such)\b", re.IGNORECASE
)
_ERROR_KEY = re.compile(r"(?:is)?(?:error|exception)s?\b", re.IGNORECASE)
_JSON_WORDS = {"True": "yes", "False": "no", "None": "none"}
_SHOWN_CHARS, _ANSWER_CHARS = 200, 1_200
_OBJECT_END = re.compile(
    r"[.:(,;\n]| (?:that|which|with|using|from|by|when|if|in|of|for|to|on|at|about|into|given)\b", re.IGNORECASE
)
_NEGATED = re.compile(
    r"\b(?:no longer|not|never|nothing|without|except|remove|drop|stop|instead)\b|n't\b", re.IGNORECASE
)
_MOST_TOOLS, _MOST_MEMBERS = 4, 12
_ENGLISH = re.compile(r"\b(?:and|for|from|how|is|it|of|read|show|that|the|this|to|what|which|with)\b", re.IGNORECASE)
_QUESTION = (
    "What should the team do? offline:rules designs it, and it reads English only: say in English what the team has to "
    "look up, or to change, or configure a language model (`STARLING_MODEL`) and repeat the request."
)


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
    """Return no decision: what only words say can't be judged by rules."""
    del prompt
    return {"met": [], "not_met": [], "reason": _NO_JUDGE}


class _Tool:
    """A tool of a candidate."""

    def __init__(self, element: Element) -> None:
        self.name = element.get("name")
        about: str = element.child("about").text
        arguments: dict[str, Any] = parse_json(element.child("arguments").text) or {}
        self.spec = ToolSpec(self.name.partition(".")[2], about, arguments)
        self.words = definition(self.spec.name, about)
        self.reads = element.get("effect") == "read"
        self.kinds = {slot.kind for slot in slots_of(arguments)}

    def score(self, part: str) -> int:
        """Return how many words it shares with a part, those of its name twice; 0 if it isn't ordered to change."""
        may_call = self.reads or opening(part) in self.words.verbs
        return self.words.shared(stems(masked(part))) if may_call else 0


def design(prompt: Element) -> dict[str, Any]:
    """Return the design for a designer's prompt, in the form of its response schema; a question for an empty goal."""
    parts = [part for part in prompt.child("parts").children("part") if stems(part.text)]
    if not parts:
        return {"question": _QUESTION, "options": []}
    servers = prompt.child("candidates").children("server")
    tools = {server.get("name"): [_Tool(tool) for tool in server.children("tool")] for server in servers}
    current: dict[str, Any] = parse_json(prompt.child("current_team").text) or {}
    members = {one.get("server") or one["name"]: one for one in current.get("members", ())}
    most = int(prompt.child("constraints").child("most_members").text or _MOST_MEMBERS)
    served, missing = list[str](), list[str]()
    for part in parts:
        server = part.get("server")
        fitting = [] if _NEGATED.search(part.text) else _fitting(part, tools.get(server, ()))
        if not fitting or (server not in members and len(members) >= most):
            missing.append(part.text)
            continue
        served.append(part.text)
        new = {"name": server, "server": server, "role": f"Works with {server}", "goal": ""}
        member = members.setdefault(server, new)
        member["goal"] = "; ".join(dict.fromkeys([*filter(None, [member["goal"]]), part.text]))
        member["parts"] = [*member.get("parts", ()), int(part.get("id"))]
        member["tools"] = list(dict.fromkeys([*member.get("tools", ()), *(tool.name for tool in fitting)]))
    if not served and not _ENGLISH.search(" ".join(missing)):
        return {"question": _QUESTION, "options": []}
    purpose = "; ".join([*filter(None, [current.get("purpose")]), *served])
    team = {"name": "_".join([*islice(members, 2), "team"]), "instructions": "", **current}
    team |= {"purpose": f"{purpose[:1].upper()}{purpose[1:]}", "members": [*members.values()]}
    return {**team, "examples": None, "missing": missing}


def _fitting(part: Element, tools: Sequence[_Tool]) -> list[_Tool]:
    """Return the tools for a part: the one that is called for it, those that share its words, or the suggested one.

    None fits if the part names a value, but for numbers, that none of these takes: no result could be about it.
    """
    called = _calls(part.text, [tool.spec for tool in tools])
    if exact := [tool for tool in tools if tool.spec.name == called]:
        return exact
    tools = [tool for tool in tools if not (tool.reads and part.get("changes"))]
    found = sorted((tool for tool in tools if tool.score(part.text)), key=lambda tool: -tool.score(part.text))
    asked_for = [tool for tool in found if tool.reads] or found
    chosen = asked_for[:_MOST_TOOLS] or [tool for tool in tools if tool.name == part.get("tool") and tool.reads]
    kinds = {value.kind for value in values_of(part.text)} - {"number"}
    return chosen if all(any({kind, "text"} & tool.kinds for tool in chosen) for kind in kinds) else []


def _calls(request: str, tools: Sequence[ToolSpec]) -> str:
    """Return the tool that these rules call for a request, empty if none."""
    reply = select_calls(Element({}, f"<task>{escape(request)}</task>"), (), tools)
    return reply.tool_calls[0].name if reply.tool_calls else ""


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
    """Return why a text is not a result: it is an error."""
    data, line = parse_json(text), text[:_SHOWN_CHARS].partition("\n")[0]
    failed = any(leaf and _ERROR_KEY.match(key) for key, leaf in leaves(data)) if data else _ERROR.match(line)
    return f"This is an error: {text[:_SHOWN_CHARS]}" if failed else ""


def _answer(prompt: Element) -> str:
    """Return the answer with the results and missing parts."""
    results = [(item.text, item.get("citation")) for item in prompt.child("results").children("result")]
    texts = [f"{_readable(text) or 'Nothing was found.'} [{citation}]" for text, citation in results]
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
