"""The design of a team: a member for each server that serves a part, and examples that were tried with these rules."""

import re
from collections.abc import Sequence
from html import escape
from itertools import islice, product
from typing import Any

from starling.core.llm import ToolSpec
from starling.infra.llm.offline.language import READ_VERBS, masked, opening, stem, stems, values_of
from starling.infra.llm.offline.matching import definition, select_calls
from starling.infra.llm.offline.prompt_parsing import Element, parse_json

_OBJECT_END = re.compile(
    r"[.:(,;\n]| (?:that|which|with|using|from|by|when|if|in|of|for|to|on|at|about|into|given)\b", re.IGNORECASE
)
_NEGATED = re.compile(
    r"\b(?:no longer|not|never|nothing|without|except|remove|drop|stop|leave out|instead)\b|n't\b", re.IGNORECASE
)
_MOST_TOOLS, _MOST_TRIED = 4, 60
_QUESTION = "What should the team do? Name what it has to look up, or to change."


class _Tool:
    """A tool of a candidate."""

    def __init__(self, element: Element) -> None:
        self.name = element.get("name")
        about, arguments = element.child("about").text, parse_json(element.child("arguments").text)
        self.spec = ToolSpec(self.name.partition(".")[2], about, arguments or {})
        self.words = definition(self.spec.name, about)
        self.reads = element.get("effect") == "read"

    def score(self, part: str) -> int:
        """Return how many words it shares with a part, those of its name twice; 0 if it isn't ordered to change."""
        wanted = stems(masked(part))
        may_call = self.reads or opening(part) in self.words.verbs
        return may_call * (len(wanted & self.words.name) + len(wanted & (self.words.name | self.words.about)))


def design(prompt: Element) -> dict[str, Any]:
    """Return the design for a designer's prompt, in the form of its response schema; a question for an empty goal."""
    parts = [part for part in prompt.child("parts").children("part") if stems(part.text)]
    if not parts:
        return {"question": _QUESTION, "options": []}
    listed, goal = prompt.child("candidates"), prompt.child("goal").text
    sources = {(kind, one.get("name")): one for kind in ("server", "team") for one in listed.children(kind)}
    tools = {source: [_Tool(tool) for tool in one.children("tool")] for source, one in sources.items()}
    values = [value.text for value in values_of(goal) if value.kind in ("path", "text")]
    current: dict[str, Any] = parse_json(prompt.child("current_team").text) or {}
    members, missing, offers = [*current.get("members", ())], list[str](), list[list[dict[str, Any]]]()
    for part in parts:
        source = next(((kind, part.get(kind)) for kind in ("server", "team") if part.get(kind)), ("", ""))
        fitting = _fitting(part, tools.get(source, ()))
        if _NEGATED.search(part.text) or (not fitting and part.get("fit") != "text"):
            missing.append(part.text)
            continue
        member = _member(members, source, part)
        if source[0] == "server":
            member["tools"] = list(dict.fromkeys([*(member.get("tools") or ()), *(tool.name for tool in fitting)]))
        offers += _examples(part.text, fitting, values)
    name = "_".join([*(member["name"] for member in members[:2]), "team"])
    further = (one for offer in offers for one in offer[1:])
    examples = {one["request"]: one for one in (*(offer[0] for offer in offers), *further)}
    chosen = [*current.get("examples", ()), *islice(examples.values(), max(2, len(offers)))]
    purpose = "; ".join(part.text for part in parts if part.text not in missing)
    team = {"name": name, "purpose": purpose, "instructions": "", **current}
    return {**team, "members": members, "examples": chosen, "missing": missing}


def _fitting(part: Element, tools: Sequence[_Tool]) -> list[_Tool]:
    """Return the tools for a part: the one that is called for it, those that share its words, or the suggested one."""
    called = _calls(part.text, [tool.spec for tool in tools])
    if exact := [tool for tool in tools if tool.spec.name == called]:
        return exact
    tools = [tool for tool in tools if not (tool.reads and part.get("changes"))]
    found = sorted((tool for tool in tools if tool.score(part.text)), key=lambda tool: -tool.score(part.text))
    asked_for = [tool for tool in found if tool.reads] or found
    return asked_for[:_MOST_TOOLS] or [tool for tool in tools if tool.name == part.get("tool") and tool.reads]


def _member(members: list[dict[str, Any]], source: tuple[str, str], part: Element) -> dict[str, Any]:
    """Return the member of a source with the part added to its tasks."""
    kind, name = source
    member = next((one for one in members if (one.get("server") or one.get("team") or "") == name), None)
    if member is None:
        role = f"Works with {name}" if name else "Writes texts about the results of others"
        members.append(member := {"name": name or "writer", "role": role, "goal": part.text, kind or "server": name})
    member["goal"] += "" if part.text in member["goal"] else f"; {part.text}"
    member["parts"] = [*member.get("parts", ()), int(part.get("id"))]
    return member


def _examples(part: str, tools: Sequence[_Tool], values: Sequence[str]) -> list[list[dict[str, Any]]]:
    """Return examples for each tool that the rules can call; where they can call none, the part itself is one."""
    specs = [tool.spec for tool in tools]
    texts = {
        tool.name: [one for one in _requests(part, tool, values) if _calls(one, specs) == tool.spec.name]
        for tool in tools
    }
    able = {name: found for name, found in texts.items() if found} or {name: [part] for name in list(texts)[:1]}
    return [[{"request": text, "must_call": [name]} for text in found] for name, found in able.items()]


def _calls(request: str, tools: Sequence[ToolSpec]) -> str:
    """Return the tool that these rules call for a request, empty if none."""
    reply = select_calls(Element({}, f"<task>{escape(request)}</task>"), (), tools)
    return reply.tool_calls[0].name if reply.tool_calls else ""


def _requests(part: str, tool: _Tool, values: Sequence[str]) -> list[str]:
    """Return requests that may be for a tool: the part itself, and its name and description with values."""
    about = _OBJECT_END.split(tool.spec.description, maxsplit=1)[0]
    verb, _, rest = about.partition(" ")
    named = " ".join(word for word in re.split(r"[\W_]+", tool.spec.name) if stem(word) not in READ_VERBS)
    paths = [value for value in values if not value.startswith(("'", '"', "`"))]
    quoted = ["", *(f" {value}" for value in values if value not in paths)]
    ends = ["", " in UTC", " in Tokyo", *(f" {word} {path}" for path in paths for word in ("of", "to", "in"))]
    verbs = ("Show", "Get") if tool.words.reads else (verb,)
    forms = product(verbs, (named, rest), quoted, ends)
    return [part, *(f"{start} {thing}{value}{end}" for start, thing, value, end in islice(forms, _MOST_TRIED))]
