"""The agent that gets a part of a request, and the tool that accounts for every word of an agent's task."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

from starling.core.artifacts import READ_ARTIFACT
from starling.core.json import JsonObject, as_items, as_object, canonical, digest
from starling.core.llm import Message, ModelReply, ModelToolCall, ToolSpec
from starling.core.tools import FIND_TOOLS, READ_RESOURCE
from starling.infra.llm import offline_texts as texts
from starling.infra.llm.offline_texts import Element, Value, masked, opening, stem, stems, values_of

_BOUNDARY = re.compile(r"[.!?;](?=\s|$)|\n|(?P<join>,\s+(?:and|then)\s+|\s+(?:and|then)\s+|,\s+)", re.IGNORECASE)
_NAMED = re.compile(r"(?is)(?:ask|use|tell) (?:the )?(?:team )?([\w-]+)(?: team)?(?::| to\b)\s*(.+)")
_TEAM_WISH = re.compile(r"(?i)(?:build|create|design|make|set up|i (?:want|need)) (?:me )?an? (?:\w+ )?team\b")
_TOOL = re.compile(r"([\w./:-]+)(?:\s\((.*?)\))?(?=,\s|\.?\s*$)", re.DOTALL)
_NO_MODEL = "offline:rules matches tools to requests and knows nothing else; no language model is configured"
_HELLO = "Hello. I am Starling, running on offline:rules, which only matches requests to tools."
_MOST_CUTS = 60
_BUILT_IN = ("continue", READ_ARTIFACT, READ_RESOURCE, FIND_TOOLS)
_KINDS: tuple[texts.Kind, ...] = ("zone", "path", "time", "text", "number")
_NO_VERB = {"", *map(stem, ("a", "an", "the", "how", "what", "which"))}
_NOT_PART = re.compile(r"\([^)]*\)|(?<!\w)['\"`][^'\"`]*['\"`]")
_AFTER_HEAD = re.compile(r"[:(,;]| (?:that|which|with|using|from|by|when|if) ")
_JOINED = re.compile(r"[\s,]*(?:and|&)?\s*")
_ASKED_FOR = re.compile(r"\b(?:which|what)\s+([^\W\d_]+)", re.IGNORECASE)
_USES = re.compile(r"\b(?:do|does|did)\b[^.?!;]*?\ufffc\s+(use)\b|\b(used)\s+by\s+\ufffc", re.IGNORECASE)
_ZONE = stems("timezone zone")
_PATH = stems("path file filename dir directory folder repo repository source destination")
_SIDES = {"from": stems("source old") | {"from"}, "to": stems("target destination new") | {"to"}}
_LIMITS = stems("limit count max maximum number return")
_NEWEST = stems("last latest newest recent")
_IN_ORDER = stems("log history recent")


class Slot(NamedTuple):
    """One argument of a tool. `many`: it takes a list. `choices` are its only values, if it names them."""

    name: str
    kind: texts.Kind | None
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

    def shared(self, wanted: frozenset[str]) -> int:
        """Return how many words a tool shares with these, those of its name twice."""
        return len(wanted & self.name) + len(wanted & (self.name | self.about))


def decide(prompt: Element) -> dict[str, Any]:
    """Return the decision for a supervisor prompt, in the form of its response schema."""
    shown, request = prompt.child("agents").children("agent"), prompt.child("user_request").text
    agents = [agent for agent in shown if agent.get("kind") != "builtin"]
    if planned := [task for task in prompt.child("current_plan").children("task") if task.get("id") and task.text]:
        return _replan(planned, texts.parse_json(prompt.child("state_context").text))
    if _TEAM_WISH.match(texts.POLITE.sub("", request, count=1)) and "architect" in [
        agent.get("name") for agent in shown
    ]:
        return _decision([{"task_id": "t1", "agent": "architect", "task": request, "depends_on": []}], [], "")
    parts = [part for part in _parts(request, agents) if values_of(part) or not stems(part) <= texts.GREETINGS]
    if not _NAMED.search(request) and (team := _team_for(parts, agents)):
        parts, agents = [request], [team]
    tasks, unserved = list[dict[str, Any]](), list[dict[str, str]]()
    changes = list[str]()  # later parts wait for those that may change something
    for part in parts:
        named = _NAMED.fullmatch(texts.POLITE.sub("", part, count=1))
        own = [agent for agent in agents if named and agent.get("name").casefold() == named[1].casefold()]
        task = named[2] if named and own else part
        agent, reason = _agent_for(task, own or agents, least=0 if own else 1)
        if reason:
            unserved.append({"part": part, "reason": reason})
            continue
        tasks.append({"task_id": f"t{len(tasks) + 1}", "agent": agent, "task": task, "depends_on": [*changes]})
        changes += [] if texts.only_asks(task) else [f"t{len(tasks)}"]
    hello = f"{_HELLO} Agents: {', '.join(agent.get('name') for agent in agents) or 'none yet'}."
    return _decision(tasks, unserved, "" if parts else hello)


def _team_for(parts: Sequence[str], agents: Sequence[Element]) -> Element | None:
    """Return the first team whose card accounts for each word of a request, where no single tool of an agent does."""
    wanted = frozenset[str]().union(*(stems(re.sub(r"\d", "", masked(part))) for part in parts))
    alone = not wanted or any(wanted <= tool.name | tool.about for agent in agents for tool in _tools(agent))
    ready = (agent for agent in agents if (agent.get("kind"), agent.get("state")) == ("team", "ready"))
    return None if alone or wanted & texts.RESTRICTING else next((it for it in ready if wanted <= stems(it.text)), None)


def _parts(request: str, agents: Sequence[Element]) -> list[str]:
    """Return the parts of a request: sentences, and what follows a comma or conjunction if it is a request too."""
    orders = frozenset[str]().union(*(tool.verbs for agent in agents for tool in _tools(agent)))
    orders -= {""}  # of a tool that a card has no room to describe
    hidden, start, found = masked(request), 0, list[str]()
    for cut in list(_BOUNDARY.finditer(hidden))[:_MOST_CUTS]:
        rest = _BOUNDARY.split(hidden[cut.end() :], maxsplit=1)[0]
        another = texts.only_asks(rest) or opening(rest) in orders or (len(cut[0].split()) > 1 and stems(rest))
        if cut["join"] is None or another:
            found.append(request[start : cut.start()].strip())
            start = cut.end()
    return [part for part in (*found, request[start:].strip()) if part]


def _tools(agent: Element) -> list[Definition]:
    listed: list[tuple[str, str]] = _TOOL.findall(agent.text.partition("Tools:")[2].strip())
    return [definition(name, about) for name, about in listed]


def _agent_for(text: str, agents: Sequence[Element], least: int) -> tuple[str, str]:
    """Return the name of the agent that fits a part best, with a score of `least` or more, or why there is none."""
    best = max(agents, key=lambda agent: (_score(text, agent), agent.get("state") == "ready"), default=None)
    if best is None or _score(text, best) < least:
        return "", f"No agent here has a tool for this ({_NO_MODEL})."
    return best.get("name"), f"{best.get('name')} is degraded: {best.text}" * (best.get("state") != "ready")


def _score(text: str, agent: Element) -> float:
    """Return how many words a part shares with an agent's best tool, and with the agent."""
    wanted, paths, tools = stems(masked(text)), texts.implied(text), _tools(agent)
    own = len(wanted & stems(f"{agent.get('name')} {agent.text.partition('Tools:')[0]}"))
    fitting = [tool for tool in tools if tool.shared(wanted)]
    named = max((len(paths & tool.name) for tool in fitting), default=0)
    return max((tool.shared(wanted) for tool in fitting), default=0 if tools else own) + named / 2 + own / 4


def _replan(planned: Sequence[Element], state: Any) -> dict[str, Any]:
    """Return the decision for an existing plan: what failed, and what needs it, is not answered."""
    results: list[dict[str, str]] = state["results"] if state and "results" in state else []
    reasons = {result["task_id"]: result["reason"] for result in results}
    tasks, unserved = list[dict[str, Any]](), dict[str, dict[str, str]]()
    for task in planned:
        key, needs = task.get("id"), re.findall(r"[\w-]+", task.get("depends_on"))
        if task.get("status") in ("failed", "rejected") or not unserved.keys().isdisjoint(needs):
            unserved[key] = {"part": task.text, "reason": reasons.get(key) or "It needs a result that failed."}
        elif task.get("status") not in ("approved", "succeeded"):
            tasks.append({"task_id": key, "agent": task.get("agent"), "task": task.text, "depends_on": needs})
    return _decision(tasks, [*unserved.values()], "")


def _decision(tasks: list[dict[str, Any]], unserved: list[dict[str, str]], reply: str) -> dict[str, Any]:
    placed = "; ".join(f"{task['agent']}: {task['task']}" for task in tasks) or "No task is left to assign"
    return {
        "thought_process": f"{placed}. Parts that can't be served: {len(unserved)}.",
        "plan": [task["task"] for task in tasks],
        "selected_agents": tasks,
        "reply": reply,
        "unserved": unserved,
        "is_request_satisfied": not tasks and not unserved,
    }


@lru_cache(maxsize=4_096)
def definition(name: str, description: str) -> Definition:
    """Return the words of a tool."""
    sentences = re.split(r"(?<=[.!?])\s+|\n+", description.strip())
    about = " ".join([sentences[0], *(text for text in sentences[1:] if text.startswith("Return"))])
    named = [stem(word) for word in re.split(r"[\W_]+", name)]
    first = next((stem(word) for word in re.findall(r"[^\W_]+", sentences[0]) if not word.endswith("ly")), "")
    reads = first in _NO_VERB or named[0] in texts.READ_VERBS or first in texts.READ_VERBS
    head = _AFTER_HEAD.split(sentences[0], maxsplit=1)[0]
    lists = "list" in named or bool(re.search(r"\s\w+[^su]s\b", head))
    verbs = {first, *(word for word in named if word in texts.READ_VERBS or not reads)}  # not “charge” of `find_charge`
    return Definition(stems(name), stems(head), stems(about), frozenset(verbs), reads, lists)


def slots_of(parameters: JsonObject) -> list[Slot]:
    """Return the arguments that a schema describes."""
    required, listed = as_items(parameters.get("required")), as_object(parameters.get("properties"))
    return [_slot(name, name in required, as_object(of)) for name, of in listed.items()]


def _slot(name: str, required: bool, schema: Mapping[str, Any]) -> Slot:
    description, words = str(schema.get("description") or ""), stems(name)
    item = as_object(schema.get("items")) if (many := schema.get("type") == "array") else schema
    kind: texts.Kind | None = "number" if item.get("type") in ("integer", "number") else None
    if item.get("type") == "string":
        kind = "zone" if words & _ZONE else "path" if words & _PATH else "time" if stem("time") in words else "text"
    quoted = re.findall(r"['\"`]([\w-]+)['\"`]", description) if "e.g" not in description else ()
    listed = as_items(item.get("enum")) or quoted
    choices = [str(choice) for choice in listed] if len(listed) > 1 and kind == "text" and not many else ()
    return Slot(name, kind, required, many, choices, stems(f"{name} {_NOT_PART.sub(' ', description)}"))


def select_calls(prompt: Element, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> ModelReply:
    """Return the calls for a task, or a text: what they returned, or why there are none, as after a rejection."""
    task = prompt.child("task").text
    if any(message.tool_calls for message in messages):
        results = [message.content for message in messages if message.role == messages[-1].role == "tool"]
        return ModelReply("\n".join(results) or "There is no other way to do this task.")
    found = [fit for tool in tools if tool.name not in _BUILT_IN and (fit := _Fit(task, tool)).is_possible]
    best = max(found, key=lambda fit: (not fit.faults, fit.about.reads, fit.score), default=None)
    if best is None:
        return ModelReply(f"No tool here does what “{task}” asks for.")
    if best.faults:
        nearest = max(found, key=lambda fit: fit.score - len(fit.faults))
        return ModelReply(f"{nearest.tool.name} was not called: {'; '.join(nearest.faults)}.")
    if not best.about.reads and sum(not fit.faults for fit in found) > 1:
        return ModelReply(f"More than one tool does what “{task}” asks for.")
    name, raw = best.tool.name, canonical(best.given)
    return ModelReply("", (ModelToolCall(f"call_{digest([name, raw])[:12]}", name, best.given, raw),))


class _Fit:
    """How a tool fits a task: the arguments that the task `given` it, and the `faults` why it can't be called."""

    def __init__(self, task: str, tool: ToolSpec) -> None:
        self.task, self.tool, self.about = task, tool, definition(tool.name, tool.description)
        self.given, self.used, self.words = dict[str, Any](), list[Value](), frozenset[str]()
        self.slots = slots_of(tool.parameters)
        self._fill()
        needed = [slot for slot in self.slots if slot.required] if self.about.reads or self.given else self.slots[:1]
        self.faults = [f"nothing accounts for “{word}”" for word in dict.fromkeys(self._leftover())]
        self.faults += [f"the task does not name `{slot.name}`" for slot in needed if slot.name not in self.given]
        wanted, name = stems(masked(task)), self.about.name
        self.topic = wanted & (name | self.about.head)
        self.score = len(self.topic) + len(wanted & name) + 3 * len(texts.implied(task) & name) - len(name - wanted) / 9
        self.score -= "deprecated" in tool.description.casefold()

    @property
    def is_possible(self) -> bool:
        """Whether task and tool share a word or a value, and the task's verb permits a tool that changes something."""
        verb, about = opening(self.task), self.about
        order = rf"\b{verb}[a-z]*\s+(?:the|a|an|all|my|this|its|\ufffc)"
        reading = texts.only_asks(self.task) or not re.search(order, masked(self.task), re.IGNORECASE)
        permitted = verb in about.verbs or (about.reads and reading and (verb != "list" or about.lists))
        return permitted and bool(self.topic or any(slot.required and slot.name in self.given for slot in self.slots))

    def _fill(self) -> None:
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

    def _leftover(self) -> list[str]:
        """Return the words and values that neither tool nor arguments account for, in order."""
        left = [value for value in values_of(self.task) if value not in self.used]
        left = [value for value in left if value.kind not in ("number", "zone")]
        spans = [(value.start, value.end) for value in (*self.used, *left)]
        asked = {match.start(1) for match in _ASKED_FOR.finditer(self.task)}
        found = [(value.start, value.text) for value in left]
        # what a folder uses is not what the disk that holds it uses
        found += [(match.start(), match[match.lastindex or 0]) for match in _USES.finditer(masked(self.task))]
        for word in texts.words_of(self.task):
            described = self.about.head if word.start in asked else self.about.about - texts.RESTRICTING
            known = word.stem in self.about.name | self.words | described
            if not known and not any(start <= word.start < end for start, end in spans):
                found.append((word.start, word.text))
        return [text for _, text in sorted(found)]

    def _open(self, kind: texts.Kind) -> list[Slot]:
        return [slot for slot in self.slots if slot.kind == kind and slot.name not in self.given and not slot.choices]

    def _free(self, kind: texts.Kind) -> list[Value]:
        return [value for value in values_of(self.task) if value.kind == kind and value not in self.used]

    def _set(self, slot: Slot, argument: object, *used: Value) -> None:
        self.given[slot.name] = argument
        self.used += used
        self.words |= slot.words

    def _assign(self, slots: list[Slot], values: list[Value]) -> None:
        """Fill required arguments of one kind, if it is clear which value belongs to which."""
        joined = all(_JOINED.fullmatch(self.task[one.end : other.start]) for one, other in pairwise(values))
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
        best = [slot for slot in slots if slot.words & before] or [
            slot for slot in slots if slot.words & after or (slot.words & _LIMITS and after & described)
        ]
        if len(best) == 1:
            self._set(best[0], value.value, value)
            self.words |= _NEWEST if best[0].words & _LIMITS and described & _IN_ORDER else frozenset()
