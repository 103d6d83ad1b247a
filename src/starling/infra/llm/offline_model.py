"""Adapter of `offline:rules`, the rule-based model: its design of a team, its review of attempts and its final answer.

A design has a member for each server that serves a part, and no examples: these rules would try only themselves.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape
from itertools import islice
from typing import Any

from starling.core.json import canonical
from starling.core.llm import ModelReply, ModelRequest, TextDelta, ToolSpec
from starling.infra.llm.chat_model import ReplyStream
from starling.infra.llm.endpoint_capabilities import EndpointFeatures
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
_NEGATED = re.compile(
    r"\W*(?:\w+\W+){0,3}?(?:(?:no longer|not|never|nothing|without|except|remove|drop|stop|instead)\b|\w+n['’]t\b)",
    re.IGNORECASE,
)  # in the first words: later ones only qualify
_MOST_TOOLS, _MOST_MEMBERS = 4, 12
_FEW = 10  # candidates, of which a search always finds one
_ENGLISH = re.compile(
    r"\b(?:and|for|from|how|is|it|my|of|read|show|tell|that|the|this|to|what|when|which|with|you)\b", re.IGNORECASE
)
_FOREIGN_WORDS = 5  # with so many words, none of which is one of these, a goal is in another language
_CHANGING = stems(
    "append book buy commit create delete edit email mail move order pay post push remove rename save send store "
    "update upload write"
)
_QUESTION = "What should the team do? Say what it has to look up, or to change."
_OTHER_LANGUAGE = (
    f"{_QUESTION} Nothing here has these words. offline:rules, which designs the team, finds servers by English words: "
    "use some, or configure a language model (`STARLING_MODEL`) and repeat the request."
)


class OfflineModel:
    """Answers the prompts that a language model gets by rules: the same request always gets the same answer."""

    name = OFFLINE
    features = EndpointFeatures(frozenset())

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
        self.only_reads = element.get("effect") == "read"
        self.reads = self.only_reads or self.words.reads
        self.kinds = {slot.kind for slot in slots_of(arguments)} if "properties" in arguments else None

    def score(self, part: str) -> int:
        """Return how many words it shares with a part, those of its name twice; 0 if it isn't ordered to change."""
        may_call = self.reads or opening(part) in self.words.verbs
        return self.words.shared(stems(masked(part))) if may_call else 0


class _Members:
    """The members of a design by their servers: those of the current team, and new ones up to the most."""

    def __init__(self, current: Mapping[str, Any], most: int) -> None:
        self.all: dict[str, dict[str, Any]] = {
            one.get("server") or one["name"]: one for one in current.get("members", ())
        }
        self._most = most

    def add(self, server: str, part: Element, tools: Sequence[_Tool]) -> bool:
        """Give a part to the member of a server, a new one if there is none; return whether that was possible."""
        if not tools or (server not in self.all and len(self.all) >= self._most):
            return False
        new = {"name": server, "server": server, "role": f"Works with {server}", "goal": ""}
        member = self.all.setdefault(server, new)
        member["goal"] = "; ".join(dict.fromkeys([*filter(None, [member["goal"]]), part.text]))
        member["parts"] = [*member.get("parts", ()), int(part.get("id"))]
        member["tools"] = list(dict.fromkeys([*member.get("tools", ()), *(tool.name for tool in tools)]))
        return True


def design(prompt: Element) -> dict[str, Any]:
    """Return the design for a designer's prompt, in the form of its response schema; a question for an empty goal."""
    parts = prompt.child("parts").children("part")
    if not (wanted := [part for part in parts if stems(part.text)]):
        return {"question": _QUESTION, "options": []}
    servers = prompt.child("candidates").children("server")
    tools = {server.get("name"): [_Tool(tool) for tool in server.children("tool")] for server in servers}
    current: dict[str, Any] = parse_json(prompt.child("current_team").text) or {}
    members = _Members(current, int(prompt.child("constraints").child("most_members").text or _MOST_MEMBERS))
    goal = " ".join(part.text for part in wanted)
    selected = _selected(prompt, tools) if _ENGLISH.search(goal) else []
    placed = [(part, members.add(*_fitting(part, tools, selected))) for part in wanted]
    is_served = any(is_served for _, is_served in placed)
    if not _ENGLISH.search(goal) and (not is_served or len(goal.split()) >= _FOREIGN_WORDS):
        return {"question": _OTHER_LANGUAGE, "options": []}
    for server in [name for name in selected if name not in members.all]:
        part = max(wanted, key=lambda one: max((tool.score(one.text) for tool in tools[server]), default=0))
        members.add(server, part, _fitting_tools(part, tools[server], tools[server][:1]))
    for part in parts:
        if members.all and part not in wanted:  # it says nothing that needs a tool
            member = next(iter(members.all.values()))
            member["parts"] = [*member.get("parts", ()), int(part.get("id"))]
    served = [part.text for part, is_served in placed if is_served]
    purpose = "; ".join([*filter(None, [current.get("purpose")]), *served])
    team = {"name": "_".join([*islice(members.all, 2), "team"]), "instructions": "", **current}
    team |= {"purpose": f"{purpose[:1].upper()}{purpose[1:]}", "members": [*members.all.values()]}
    return {**team, "examples": None, "missing": [part.text for part, is_served in placed if not is_served]}


def _selected(prompt: Element, tools: Mapping[str, Sequence[_Tool]]) -> list[str]:
    """Return the servers that the search selected for parts and for the whole goal; none among few candidates."""
    candidates = prompt.child("candidates")
    servers = candidates.children("server")
    if len(servers) + len(candidates.children("team")) < _FEW:
        return []
    good = [part.get("server") for part in prompt.child("parts").children("part") if part.get("fit") == "good"]
    for_goal = [server.get("name") for server in servers if server.get("fits")]
    return [name for name in dict.fromkeys([*good, *for_goal]) if name in tools]


def _fitting(
    part: Element, tools: Mapping[str, Sequence[_Tool]], selected: Sequence[str]
) -> tuple[str, Element, list[_Tool]]:
    """Return the first of the servers nearest to a part that has tools for it, with these; none for what is negated.

    What fits weakly goes to a `selected` server: most often it only tells about the others. None are selected where the
    search says little: then the tools share a word of their names, or of what they are about.
    """
    near, wanted = part.get("nearest").split(", "), stems(masked(part.text))
    if part.get("fit") == "weak" and selected:
        near = sorted(selected, key=lambda server: server not in near)
    if part.get("fit") == "none" or _NEGATED.match(part.text):
        near = []
    for server in near:
        own = tools.get(server, ())
        suggested = [tool for tool in own if tool.name == part.get("tool")] or own[:1]
        fitting = _fitting_tools(part, own, suggested if selected else ())
        if fitting and (selected or any(wanted & (tool.words.name | tool.words.head) for tool in fitting)):
            return server, part, fitting
    return "", part, []


def _fitting_tools(part: Element, tools: Sequence[_Tool], suggested: Sequence[_Tool]) -> list[_Tool]:
    """Return the tools for a part: the one that is called for it, those that share its words, or the suggested ones.

    None fits if the part names a value, but for numbers, that none of these takes: no result could be about it.
    """
    called = _calls(part.text, [tool.spec for tool in tools])
    if exact := [tool for tool in tools if tool.spec.name == called]:
        return exact
    changes = opening(part.text) in _CHANGING
    found = sorted((tool for tool in tools if tool.score(part.text)), key=lambda tool: -tool.score(part.text))
    able = [tool for tool in (found or suggested) if not (changes and tool.only_reads)]
    reading = [tool for tool in able if tool.only_reads] or [tool for tool in able if tool.reads]
    chosen = (reading or able)[:_MOST_TOOLS]
    kinds = {value.kind for value in values_of(part.text)} - {"number"}
    takes = [tool.kinds for tool in chosen]
    return chosen if all(any(own is None or {kind, "text"} & own for own in takes) for kind in kinds) else []


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
