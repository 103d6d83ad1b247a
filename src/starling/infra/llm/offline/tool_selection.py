"""A specialist's turn: which tools to call, with which arguments."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from starling.core.artifacts import READ_ARTIFACT
from starling.core.json import JsonObject, canonical, digest, storable
from starling.core.llm import Message, ModelReply, ModelToolCall, ToolSpec
from starling.infra.llm.offline.agent_ranking import Index, implied, subject, weighted
from starling.infra.llm.offline.arguments import Filled, fill
from starling.infra.llm.offline.error_detection import fault
from starling.infra.llm.offline.prompt_parsing import Sections, parsed, plain
from starling.infra.llm.offline.request_splitting import refers_back
from starling.infra.llm.offline.tokenization import READING, VAGUE, VERBS, content
from starling.infra.llm.offline.tool_schema import Slot, slots
from starling.infra.llm.offline.value_extraction import masked, values
from starling.infra.llm.offline.write_intent import changing, makes, ordered

_BUILT_IN = ("continue", READ_ARTIFACT)
_OTHER_ORDER = 0.6  # what a tool is worth that isn't named after the change that is asked for
_BORROWED = 0.9  # and one, for each argument that the task itself doesn't name
_CLOSE = 0.7  # of the best tool's worth: below it, rather say what the best one misses
_DESCRIPTION_CHARS = 600
_MOST_TOOLS = 4
_HINT_CHARS = 80
_AND = re.compile(r",?\s+and\s+|,\s+|\s*&\s+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Option:
    """A tool for a task. `changes` says that it changes something, `meant` that the task orders just that."""

    tool: ToolSpec
    worth: float
    hits: frozenset[str]
    filled: Filled
    changes: bool
    meant: bool


def act(sections: Sections, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> ModelReply:
    """Return the calls for a task, or in words what is missing for them."""
    made = [(call.name, canonical(storable(call.arguments))) for message in messages for call in message.tool_calls]
    results = [message.content for message in messages if message.role == "tool"]
    if results and not sections.text("feedback") and not fault(results[-1]):
        return ModelReply("")
    task = sections.text("task")
    known = [*_known(task, sections.text("state_context")), sections.text("user_request")]
    offered = sorted((tool for tool in tools if tool.name not in _BUILT_IN), key=lambda tool: tool.name)
    chosen = _chosen(task, known, offered, made)
    if isinstance(chosen, str):
        return ModelReply(chosen)
    calls = [(option.tool.name, arguments) for option in chosen for arguments in option.filled.arguments]
    new = [(name, arguments) for name, arguments in calls if (name, canonical(arguments)) not in made]
    return ModelReply("", tuple(_call(name, arguments, at) for at, (name, arguments) in enumerate(new, len(made))))


def _known(task: str, state: str) -> list[str]:
    """Return what earlier tasks found; where the task refers back, the conversation too, the newest first."""
    data = parsed(state)
    if not isinstance(data, Mapping):
        return []
    said = data.get("messages")
    messages = said[::-1] if isinstance(said, list) and refers_back(task) else []
    return [plain(part) for part in (data.get("results", ""), *messages)]


def _call(name: str, arguments: JsonObject, position: int) -> ModelToolCall:
    raw = canonical(arguments)
    return ModelToolCall(f"call_{position}_{digest([name, raw])[:12]}", name, arguments, raw)


@lru_cache(maxsize=64)
def _index(texts: tuple[tuple[str, str], ...]) -> Index:
    return Index([(at, weighted(name, about)) for at, (name, about) in enumerate(texts)], len(texts), quiet=READING)


def _about(tool: ToolSpec) -> str:
    """Return what describes a tool: the beginning of its description, and its parameters' names."""
    return f"{tool.description[:_DESCRIPTION_CHARS]} {' '.join(slot.name for slot in slots(tool.parameters))}"


def _ranked(task: str, known: Sequence[str], tools: Sequence[ToolSpec]) -> list[_Option]:
    """Return the tools that share words with a task, the worthiest first."""
    index = _index(tuple((tool.name, tool.description[:_DESCRIPTION_CHARS]) for tool in tools))
    words = subject(task, index)
    if not words.keys() - VERBS:
        words.update(word for word in implied(task) if index.knows(word))
    options = [_option(tools[at], score, words, task, known) for at, score in index.scores(words).items()]
    return sorted(options, key=lambda option: (-option.worth, option.tool.name))


def _option(tool: ToolSpec, score: float, words: Counter[str], task: str, known: Sequence[str]) -> _Option:
    about, orders = tool.description[:_DESCRIPTION_CHARS], ordered(task)
    vocabulary = {*content(tool.name), *content(_about(tool))}
    changes = changing(tool.name, about)
    filled = fill(tool.parameters, task, known, f"{tool.name} {about}", literal=changes)
    meant = changes and makes(tool.name, about, orders)
    worth = (score + filled.used / (len(values(task)) or 1)) * _BORROWED**filled.borrowed
    worth *= _OTHER_ORDER if orders and not meant else 1.0
    return _Option(tool, worth, frozenset(vocabulary & words.keys()), filled, changes, meant)


def _chosen(
    task: str, known: Sequence[str], tools: Sequence[ToolSpec], made: list[tuple[str, str]]
) -> list[_Option] | str:
    """Return the tools to call: the best, or one for each thing that the task lists; or what is missing.

    What changes something is never tried for a task that orders no change, nor after another try.
    """
    ranked = [option for option in _ranked(task, known, tools) if _convincing(option, task)]
    new = [option for option in ranked if not _was_made(option, made) and not (made and option.changes)]
    fresh = [option for option in new if option.meant or not option.changes]
    unsure = ordered(task) - VAGUE and not any(option.meant for option in fresh)
    for option in new:
        if option.changes and unsure:
            return f"I can't tell whether the task “{task}” means {option.tool.name}."
    able = [option for option in fresh if not option.filled.missing]
    if not able or able[0].worth < _CLOSE * fresh[0].worth:
        return _why_not(task, fresh, bool(made))
    several = [] if made or able[0].changes else _several(task, known, tools)
    return several or [able[0]]


def _several(task: str, known: Sequence[str], tools: Sequence[ToolSpec]) -> list[_Option]:
    """Return the tools for "disk and memory", where each thing has one of its own, else none."""
    found: dict[str, _Option] = {}
    for segment in _segments(task):
        best = next(iter(_ranked(segment, [task, *known], tools)), None)
        usable = best and best.hits - VERBS and not best.filled.missing and not best.changes
        if best and usable and content(masked(segment)):
            found.setdefault(best.tool.name, best)
    return list(found.values())[:_MOST_TOOLS] if len(found) > 1 else []


def _segments(task: str) -> list[str]:
    cuts = [match.span() for match in _AND.finditer(masked(task))]
    starts, ends = [0, *(end for _, end in cuts)], [*(start for start, _ in cuts), len(task)]
    return [task[start:end] for start, end in zip(starts, ends, strict=True)]


def _was_made(option: _Option, made: list[tuple[str, str]]) -> bool:
    return all((option.tool.name, canonical(arguments)) in made for arguments in option.filled.arguments)


def _convincing(option: _Option, task: str) -> bool:
    """Whether a tool shares a thing with the task; with a task that only names values, the verb."""
    things = set(content(masked(task))) - VERBS
    return bool(option.hits - VERBS) if things else bool(option.hits)


def _why_not(task: str, options: list[_Option], tried: bool) -> str:
    if tried:
        return "I tried what fits this task; no other tool here can do it."
    lacking = [option for option in options if option.filled.missing and option.worth >= _CLOSE * options[0].worth]
    best = min(lacking, key=lambda option: len(option.filled.missing), default=None)
    if best is None:
        return f"No tool here fits the task “{task}”."
    needed = ", ".join(_described(slot) for slot in best.filled.missing)
    unclear = f" I can't tell what {', '.join(best.filled.unresolved)} stands for." if best.filled.unresolved else ""
    return f"{best.tool.name} needs {needed}, which the task doesn't name.{unclear}"


def _described(slot: Slot) -> str:
    hint = re.split(r"\.\s|\n|\s\(", slot.description)[0].strip(" .")[:_HINT_CHARS]
    return f"`{slot.name}` ({hint})" if hint else f"`{slot.name}`"
