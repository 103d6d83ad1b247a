"""An agent's turn: fills the arguments of a tool from its task, and calls it if that accounts for every word."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple, cast

from starling.core.artifacts import READ_ARTIFACT
from starling.core.json import JsonObject, canonical, digest
from starling.core.llm import Message, ModelReply, ModelToolCall, ToolSpec
from starling.core.tools import FIND_TOOLS, READ_RESOURCE
from starling.infra.llm.offline.language import (
    READ_VERBS,
    RESTRICTING,
    Kind,
    Value,
    implied,
    masked,
    only_asks,
    opening,
    stem,
    stems,
    values_of,
    words_of,
)
from starling.infra.llm.offline.prompt_parsing import Element
from starling.infra.llm.offline.skills import skill_call

_BUILT_IN = ("continue", READ_ARTIFACT, READ_RESOURCE, FIND_TOOLS)
_KINDS: tuple[Kind, ...] = ("zone", "path", "time", "text", "number")
_NO_VERB = {"", *map(stem, ("a", "an", "the", "how", "what", "which"))}
_NOT_PART = re.compile(r"\([^)]*\)|(?<!\w)['\"`][^'\"`]*['\"`]")
_AFTER_HEAD = re.compile(r"[:(,;]| (?:that|which|with|using|from|by|when|if) ")
_JOINED = re.compile(r"[\s,]*(?:and|&)?\s*")
_ASKED_FOR = re.compile(r"\b(?:which|what)\s+([^\W\d_]+)", re.IGNORECASE)
_ZONE = stems("timezone zone")
_PATH = stems("path file filename dir directory folder repo repository source destination")
_SIDES = {"from": stems("source old") | {"from"}, "to": stems("target destination new") | {"to"}}
_LIMITS = stems("limit count max maximum number return")
_NEWEST = stems("last latest newest recent")
_IN_ORDER = stems("log history recent")


class Slot(NamedTuple):
    """One argument of a tool. `many`: it takes a list. `choices` are its only values, if it names them."""

    name: str
    kind: Kind | None
    required: bool
    many: bool
    choices: Sequence[str]
    words: frozenset[str]


class Definition(NamedTuple):
    """A tool's words: of its `name`, of the object of its description (`head`), of what it does and returns."""

    name: frozenset[str]
    head: frozenset[str]
    about: frozenset[str]
    verbs: frozenset[str]
    reads: bool
    lists: bool


@lru_cache(maxsize=4_096)
def definition(name: str, description: str) -> Definition:
    """Return the words of a tool."""
    sentences = re.split(r"(?<=[.!?])\s+|\n+", description.strip())
    about = " ".join([sentences[0], *(text for text in sentences[1:] if text.startswith("Return"))])
    named = [stem(word) for word in re.split(r"[\W_]+", name)]
    first = next((stem(word) for word in re.findall(r"[^\W_]+", sentences[0]) if not word.endswith("ly")), "")
    reads = first in _NO_VERB or named[0] in READ_VERBS or first in READ_VERBS
    head = _AFTER_HEAD.split(sentences[0], maxsplit=1)[0]
    lists = "list" in named or bool(re.search(r"\s\w+[^su]s\b", head))
    verbs = {first, *(word for word in named if word in READ_VERBS or not reads)}  # “charge” of `find_charge` is none
    return Definition(stems(name), stems(head), stems(about), frozenset(verbs), reads, lists)


def _slots(parameters: JsonObject) -> list[Slot]:
    required = parameters.get("required")
    names = cast("list[object]", required) if isinstance(required, list) else []
    return [_slot(name, name in names, _mapping(of)) for name, of in _mapping(parameters.get("properties")).items()]


def argument_kinds(parameters: JsonObject) -> frozenset[Kind]:
    """Return the kinds of values that a tool takes, without numbers; what may be of several types takes any text."""
    listed = {name: _mapping(of) for name, of in _mapping(parameters.get("properties")).items()}
    worded = {name: of for name, of in listed.items() if of.get("type") not in ("boolean", "integer", "number")}
    return frozenset(_slot(name, required=False, schema=of).kind or "text" for name, of in worded.items())


def _slot(name: str, required: bool, schema: Mapping[str, Any]) -> Slot:
    description = str(schema.get("description") or "")
    item = _mapping(schema.get("items")) if (many := schema.get("type") == "array") else schema
    kind = _kind(stems(name), item.get("type"))
    listed: Sequence[Any] = re.findall(r"['\"`]([\w-]+)['\"`]", description) if "e.g" not in description else ()
    listed = item["enum"] if isinstance(item.get("enum"), list) else listed
    choices = [str(choice) for choice in listed] if len(listed) > 1 and kind == "text" and not many else ()
    return Slot(name, kind, required, many, choices, stems(f"{name} {_NOT_PART.sub(' ', description)}"))


def _kind(words: frozenset[str], of_type: object) -> Kind | None:
    if of_type != "string":
        return "number" if of_type in ("integer", "number") else None
    return "zone" if words & _ZONE else "path" if words & _PATH else "time" if stem("time") in words else "text"


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


class _Fit(NamedTuple):
    """How a tool fits a task: the arguments, and why it can't be called with them."""

    tool: ToolSpec
    reads: bool
    score: float
    arguments: JsonObject
    faults: list[str]


def select_calls(prompt: Element, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> ModelReply:
    """Return the calls for a task, or a text: what they returned, or why there are none, as after a rejection."""
    task = prompt.child("task").text
    if any(message.tool_calls for message in messages):
        results = [message.content for message in messages if message.role == messages[-1].role == "tool"]
        return ModelReply("\n".join(results) or "There is no other way to do this task.")
    for call in filter(None, (skill_call(skill, task) for skill in prompt.children("skill"))):
        if call[0] in {tool.name for tool in tools}:
            return _reply(*call)
    found = [fit for tool in tools if tool.name not in _BUILT_IN and (fit := _fit(task, tool))]
    best = max(found, key=lambda fit: (not fit.faults, fit.reads, fit.score), default=None)
    if best is None:
        return ModelReply(f"No tool here does what “{task}” asks for.")
    if best.faults:
        nearest = max(found, key=lambda fit: fit.score - len(fit.faults))
        return ModelReply(f"{nearest.tool.name} was not called: {'; '.join(nearest.faults)}.")
    if not best.reads and sum(not fit.faults for fit in found) > 1:
        return ModelReply(f"More than one tool does what “{task}” asks for.")
    return _reply(best.tool.name, best.arguments)


def _reply(tool: str, arguments: JsonObject) -> ModelReply:
    raw = canonical(arguments)
    return ModelReply("", (ModelToolCall(f"call_{digest([tool, raw])[:12]}", tool, arguments, raw),))


def _fit(task: str, tool: ToolSpec) -> _Fit | None:
    """Return how a tool fits a task; None if they share no word and no value, or the task orders another verb."""
    about, slots, wanted = definition(tool.name, tool.description), _slots(tool.parameters), stems(masked(task))
    filled = _Arguments(task, about, slots)
    topic = wanted & (about.name | about.head)
    if not _may_call(task, about) or not (topic or any(slot.required and slot.name in filled.given for slot in slots)):
        return None
    needed = [slot for slot in slots if slot.required] if about.reads or filled.given else slots[:1]
    faults = [f"nothing accounts for “{word}”" for word in dict.fromkeys(filled.leftover())]
    faults += [f"the task does not name `{slot.name}`" for slot in needed if slot.name not in filled.given]
    score = len(topic) + len(wanted & about.name) + 3 * len(implied(task) & about.name) - len(about.name - wanted) / 9
    score -= "deprecated" in tool.description.casefold()
    return _Fit(tool, about.reads, score, filled.given, faults)


def _may_call(task: str, about: Definition) -> bool:
    """Return whether the verb of a task permits a tool: one that changes something has to be ordered by its name."""
    verb = opening(task)
    orders = bool(re.search(rf"\b{verb}[a-z]*\s+(?:the|a|an|all|my|this|its|\ufffc)", masked(task), re.IGNORECASE))
    return verb in about.verbs or (about.reads and (only_asks(task) or not orders) and (verb != "list" or about.lists))


@dataclass(slots=True)
class _Arguments:
    """The arguments that a task gives a tool, and which words of the task they account for."""

    task: str
    about: Definition
    slots: list[Slot]
    given: dict[str, Any] = field(default_factory=dict[str, Any])
    used: list[Value] = field(default_factory=list[Value])
    words: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        for slot in self.slots:
            mentioned = [choice for choice in slot.choices if stems(choice) and stems(choice) <= stems(self.task)]
            if len(mentioned) == 1:
                self._set(slot, mentioned[0])
                self.words |= stems(mentioned[0])
        for kind in _KINDS:
            self._assign([slot for slot in self._open(kind) if slot.required], self._free(kind))
        for value in self._free("number"):
            self._limit(value)
        if len(slots := self._open("path")) == len(paths := self._free("path")) == 1:
            self._set(slots[0], paths[0].value, paths[0])

    def leftover(self) -> list[str]:
        """Return the words and values that neither tool nor arguments account for, in order."""
        left = [value for value in values_of(self.task) if value not in self.used]
        left = [value for value in left if value.kind not in ("number", "zone")]
        spans = [(value.start, value.end) for value in (*self.used, *left)]
        asked = {match.start(1) for match in _ASKED_FOR.finditer(self.task)}
        found = [(value.start, value.text) for value in left]
        for word in words_of(self.task):
            described = self.about.head if word.start in asked else self.about.about - RESTRICTING
            known = word.stem in self.about.name | self.words | described
            if not known and not any(start <= word.start < end for start, end in spans):
                found.append((word.start, word.text))
        return [text for _, text in sorted(found)]

    def _open(self, kind: Kind) -> list[Slot]:
        return [slot for slot in self.slots if slot.kind == kind and slot.name not in self.given and not slot.choices]

    def _free(self, kind: Kind) -> list[Value]:
        return [value for value in values_of(self.task) if value.kind == kind and value not in self.used]

    def _set(self, slot: Slot, argument: object, *used: Value) -> None:
        self.given[slot.name] = argument
        self.used += used
        self.words |= slot.words

    def _assign(self, slots: list[Slot], values: list[Value]) -> None:
        """Fill required arguments of one kind, if it is clear which value belongs to which."""
        gaps = [self.task[one.end : other.start] for one, other in pairwise(values)]
        joined = all(_JOINED.fullmatch(gap) for gap in gaps)
        for value in values:
            side = next((words for name, words in _SIDES.items() if self.task[: value.start].endswith(f" {name} ")), ())
            if len(fitting := [slot for slot in slots if stems(slot.name).union({slot.name}).intersection(side)]) == 1:
                self._set(fitting[0], value.value, value)
        slots = [slot for slot in slots if slot.name not in self.given]
        values = [value for value in values if value not in self.used]
        if len(slots) == len(values) == 1 or (joined and len(slots) == len(values)):
            for slot, value in zip(slots, values, strict=True):
                self._set(slot, [value.value] if slot.many else value.value, value)
        elif values and joined and [slot.many for slot in slots] == [True]:
            self._set(slots[0], [value.value for value in values], *values)

    def _limit(self, value: Value) -> None:
        """Fill the optional number whose words stand beside a value, or which limits how many results there are."""
        before = set(map(stem, re.findall(r"\w+(?=\s*$)", self.task[: value.start])))
        after = set(map(stem, re.findall(r"^\s*(\w+)", self.task[value.end :])))
        described, slots = self.about.name | self.about.about, self._open("number")
        beside = [2 * len(slot.words & before) + len(slot.words & after) for slot in slots]
        scores = [at + bool(s.words & _LIMITS and after & described) for at, s in zip(beside, slots, strict=True)]
        best = [slot for slot, score in zip(slots, scores, strict=True) if score == max(scores) > 0]
        if len(best) == 1:
            self._set(best[0], value.value, value)
            self.words |= _NEWEST if best[0].words & _LIMITS and described & _IN_ORDER else frozenset()
