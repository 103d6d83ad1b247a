"""The design of a team: a member for each server that serves a part, and examples that were tried with these rules."""

import re
from collections.abc import Sequence
from html import escape
from itertools import islice, product
from typing import Any

from starling.core.llm import ToolSpec
from starling.infra.llm.offline.language import READ_VERBS, Value, masked, opening, stem, stems, values_of
from starling.infra.llm.offline.matching import argument_kinds, definition, select_calls
from starling.infra.llm.offline.prompt_parsing import Element, parse_json

_OBJECT_END = re.compile(
    r"[.:(,;\n]| (?:that|which|with|using|from|by|when|if|in|of|for|to|on|at|about|into|given)\b", re.IGNORECASE
)
_NEGATED = re.compile(
    r"\b(?:no longer|not|never|nothing|without|except|remove|drop|stop|leave out|instead)\b|n't\b", re.IGNORECASE
)
_MOST_TOOLS, _MOST_TRIED, _MOST_MEMBERS = 4, 60, 12
_FEW_WORDS = 4
_FREQUENT_TEXT = "and for from how is it my of on that the this to what which with you your"
_FREQUENT = frozenset(_FREQUENT_TEXT.split())
_ONLY_ENGLISH = (
    "offline:rules designs this team, and it reads English only. Say in English what the team has to look up, or to "
    "change; or configure a language model (`STARLING_MODEL`), which reads any language, and repeat the request."
)
_QUESTION = "What should the team do? Name what it has to look up, or to change."


class _Tool:
    """A tool of a candidate."""

    def __init__(self, element: Element) -> None:
        self.name = element.get("name")
        about, arguments = element.child("about").text, parse_json(element.child("arguments").text)
        self.is_whole = arguments is not None  # the prompt leaves long schemas out
        self.spec = ToolSpec(self.name.partition(".")[2], about, arguments or {})
        self.words = definition(self.spec.name, about)
        self.reads = element.get("effect") == "read"

    def takes(self, value: Value) -> bool:
        """Return whether an argument may be this value."""
        kinds = argument_kinds(self.spec.parameters)
        return not self.is_whole or bool(kinds & {value.kind, "text"}) or (value.kind == "text" and "path" in kinds)

    def score(self, part: str) -> int:
        """Return how many words it shares with a part, those of its name twice; 0 if it isn't ordered to change."""
        wanted = stems(masked(part))
        may_call = self.reads or opening(part) in self.words.verbs
        return may_call * (len(wanted & self.words.name) + len(wanted & (self.words.name | self.words.about)))


type _Source = tuple[str, str]
"""`server` or `team`, and its name; both empty for a writer."""


class _Goal:
    """What a designer's prompt gives: parts, tools by what offers them, values, demands."""

    def __init__(self, prompt: Element) -> None:
        listed, limits = prompt.child("candidates"), prompt.child("constraints")
        sources = {(kind, one.get("name")): one for kind in ("server", "team") for one in listed.children(kind)}
        self.parts = [part for part in prompt.child("parts").children("part") if stems(part.text)]
        self.tools = {source: [_Tool(tool) for tool in one.children("tool")] for source, one in sources.items()}
        self.values = [value.text for value in values_of(prompt.child("goal").text) if value.kind in ("path", "text")]
        self.current: dict[str, Any] = parse_json(prompt.child("current_team").text) or {}
        self.own_cases = {tool.text for case in prompt.children("case") for tool in case.children("must_call")}
        self.most_members = int(limits.child("most_members").text or _MOST_MEMBERS)

    def sources(self) -> dict[str, _Source]:
        """Return what serves each part: of few members, those that serve most parts; nothing where none can."""
        best = {part.get("id"): _suggested(part) for part in self.parts}
        known = [_source_of(member) for member in self.current.get("members", ())]
        new = [one for one in dict.fromkeys(best.values()) if one not in known]
        served = {one: sum(self._serves(one, part) for part in self.parts) for one in new}
        kept = [*known, *sorted(new, key=lambda one: -served[one])[: max(0, self.most_members - len(known))]]
        found = {
            part.get("id"): next((one for one in kept if self._serves(one, part)), None)
            for part in self.parts
            if best[part.get("id")] not in kept
        }
        return {part: source for part, source in (best | found).items() if source is not None}

    def _serves(self, source: _Source, part: Element) -> bool:
        return source == _suggested(part) or bool(_calls(part.text, [tool.spec for tool in self.tools.get(source, ())]))


def design(prompt: Element) -> dict[str, Any]:
    """Return the design for a designer's prompt, in the form of its response schema; a question for an empty goal."""
    goal = _Goal(prompt)
    if not goal.parts:
        return {"question": _QUESTION, "options": []}
    current, sources = goal.current, goal.sources()
    members, missing, offers = [*current.get("members", ())], list[str](), list[list[dict[str, Any]]]()
    for part in goal.parts:
        source = sources.get(part.get("id"))
        fitting = _fitting(part, goal.tools.get(source, ())) if source else []
        if source is None or _NEGATED.search(part.text) or (not fitting and part.get("fit") != "text"):
            missing.append(part.text)
            continue
        member = _member(members, source, part)
        if source[0] == "server":
            known = [tool.name for tool in goal.tools[source] if tool.name in goal.own_cases]
            named = [*(member.get("tools") or ()), *(tool.name for tool in fitting), *known]
            member["tools"] = list(dict.fromkeys(named))
        offers += _examples(part.text, fitting, goal)
    if len(missing) == len(goal.parts) and not _is_english(" ".join(missing)):
        return {"question": _ONLY_ENGLISH, "options": []}
    name = "_".join([*(member["name"] for member in members[:2]), "team"])
    further = (one for offer in offers for one in offer[1:])
    examples = {one["request"]: one for one in (*(offer[0] for offer in offers), *further)}
    chosen = [*current.get("examples", ()), *islice(examples.values(), max(2, len(offers)))]
    served = [part.text for part in goal.parts if part.text not in missing]
    purpose = "; ".join([*filter(None, [current.get("purpose")]), *served])
    team = {"name": name, "instructions": "", **current, "purpose": f"{purpose[:1].upper()}{purpose[1:]}"}
    return {**team, "members": members, "examples": chosen, "missing": missing}


def _is_english(text: str) -> bool:
    """Return whether a text may be English; one of few words may be, unless it has letters that English has not."""
    words = re.findall(r"[^\W\d_]+", masked(text).casefold())
    return not _FREQUENT.isdisjoint(words) or (len(words) < _FEW_WORDS and text.isascii())


def _suggested(part: Element) -> _Source:
    return next(((kind, part.get(kind)) for kind in ("server", "team") if part.get(kind)), ("", ""))


def _source_of(member: dict[str, Any]) -> _Source:
    return next(((kind, member[kind]) for kind in ("server", "team") if member.get(kind)), ("", ""))


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
    named = [value for value in values_of(part.text) if value.kind != "number"]
    return chosen if all(any(tool.takes(value) for tool in chosen) for value in named) else []


def _member(members: list[dict[str, Any]], source: _Source, part: Element) -> dict[str, Any]:
    """Return the member of a source with the part added to its tasks."""
    kind, name = source
    member = next((one for one in members if (one.get("server") or one.get("team") or "") == name), None)
    if member is None:
        role = f"Works with {name}" if name else "Writes texts about the results of others"
        members.append(member := {"name": name or "writer", "role": role, "goal": part.text, kind or "server": name})
    member["goal"] += "" if part.text in member["goal"] else f"; {part.text}"
    member["parts"] = [*member.get("parts", ()), int(part.get("id"))]
    return member


def _examples(part: str, tools: Sequence[_Tool], goal: _Goal) -> list[list[dict[str, Any]]]:
    """Return examples for each tool that the rules can call.

    Where they can call none, the part itself is one, unless a case of the caller's own calls such a tool.
    """
    specs = [tool.spec for tool in tools]
    texts = {
        tool.name: [one for one in _requests(part, tool, goal.values) if _calls(one, specs) == tool.spec.name]
        for tool in tools
    }
    untried = [] if goal.own_cases.intersection(texts) else list(texts)[:1]
    able = {name: found for name, found in texts.items() if found} or {name: [part] for name in untried}
    return [[{"request": text, "must_call": [name]} for text in found] for name, found in able.items()]


def _calls(request: str, tools: Sequence[ToolSpec]) -> str:
    """Return the tool that these rules call for a request, empty if none."""
    reply = select_calls(Element({}, f"<task>{escape(request)}</task>"), (), tools)
    return reply.tool_calls[0].name if reply.tool_calls else ""


def _requests(part: str, tool: _Tool, values: Sequence[str]) -> list[str]:
    """Return requests that may be for a tool: the part itself, and its name and description with values."""
    about = _OBJECT_END.split(tool.spec.description, maxsplit=1)[0]
    verb, _, rest = about.partition(" ")
    words = re.split(r"[\W_]+", tool.spec.name)
    orders = [word for word in words if stem(word) in tool.words.verbs and not tool.words.reads]
    named = " ".join(word for word in words if stem(word) not in READ_VERBS and word not in orders)
    paths = [value for value in values if not value.startswith(("'", '"', "`"))]
    quoted = ["", *(f" {value}" for value in values if value not in paths)]
    ends = ["", " in UTC", " in Tokyo", *(f" {word} {path}" for path in paths for word in ("of", "to", "in"))]
    # a reviewer finds the order to change something again in the name of the tool, not in its description
    verbs = ("Show", "Get") if tool.words.reads else ((orders or [verb])[0].capitalize(),)
    forms = product(verbs, (named, rest), quoted, ends)
    return [part, *(f"{start} {thing}{value}{end}" for start, thing, value, end in islice(forms, _MOST_TRIED))]
