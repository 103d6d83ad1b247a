"""A specialist's turn: selects tools and their arguments."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from starling.core.artifacts import READ_ARTIFACT
from starling.core.json import JsonObject, canonical, digest, storable
from starling.core.llm import Message, ModelReply, ModelToolCall, ToolSpec
from starling.infra.llm.offline.agent_ranking import TfidfIndex, implied_terms, subject_terms, term_weights
from starling.infra.llm.offline.arguments import FilledArguments, fill_arguments
from starling.infra.llm.offline.error_detection import error_line
from starling.infra.llm.offline.prompt_parsing import PromptSections, parse_json, values_text
from starling.infra.llm.offline.request_splitting import has_back_reference
from starling.infra.llm.offline.tokenization import COMMON_VERBS, READING_VERBS, VAGUE_VERBS, content_words
from starling.infra.llm.offline.tool_schema import Slot, schema_slots
from starling.infra.llm.offline.value_extraction import extract_values, mask_values
from starling.infra.llm.offline.write_intent import is_write_tool, performs, requested_changes

_BUILT_IN = ("continue", READ_ARTIFACT)
_OTHER_CHANGE_FACTOR = 0.6  # what a tool is score that isn't named after the change that is asked for
_CONTEXT_FACTOR = 0.9  # for each argument that is not in the task itself
_COMPARABLE_SCORE = 0.7  # of the best tool's score: below it, rather say what the best one misses
_DESCRIPTION_CHARS = 600
_MOST_TOOLS = 4
_HINT_CHARS = 80
_AND = re.compile(r",?\s+and\s+|,\s+|\s*&\s+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _ToolCandidate:
    """A candidate tool for a task. `changes`: it is a write tool; `requested`: the task requests this change."""

    tool: ToolSpec
    score: float
    matched: frozenset[str]
    filled: FilledArguments
    changes: bool
    requested: bool


def select_calls(sections: PromptSections, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> ModelReply:
    """Return the calls for a task, or a text that names what is missing."""
    earlier = [(call.name, canonical(storable(call.arguments))) for message in messages for call in message.tool_calls]
    results = [message.content for message in messages if message.role == "tool"]
    if results and not sections.text("feedback") and not error_line(results[-1]):
        return ModelReply("")
    task = sections.text("task")
    context = [*_context_texts(task, sections.text("state_context")), sections.text("user_request")]
    offered = sorted((tool for tool in tools if tool.name not in _BUILT_IN), key=lambda tool: tool.name)
    chosen = _choose_tools(task, context, offered, earlier)
    if isinstance(chosen, str):
        return ModelReply(chosen)
    calls = [(option.tool.name, arguments) for option in chosen for arguments in option.filled.arguments]
    new = [(name, arguments) for name, arguments in calls if (name, canonical(arguments)) not in earlier]
    return ModelReply("", tuple(_call(name, arguments, at) for at, (name, arguments) in enumerate(new, len(earlier))))


def _context_texts(task: str, state: str) -> list[str]:
    """Return the results of earlier tasks and, if the task has back-references, the conversation, newest first."""
    data = parse_json(state)
    if not isinstance(data, Mapping):
        return []
    history = data.get("messages")
    messages = history[::-1] if isinstance(history, list) and has_back_reference(task) else []
    return [values_text(part) for part in (data.get("results", ""), *messages)]


def _call(name: str, arguments: JsonObject, position: int) -> ModelToolCall:
    raw = canonical(arguments)
    return ModelToolCall(f"call_{position}_{digest([name, raw])[:12]}", name, arguments, raw)


@lru_cache(maxsize=64)
def _index(texts: tuple[tuple[str, str], ...]) -> TfidfIndex:
    return TfidfIndex(
        [(at, term_weights(name, about)) for at, (name, about) in enumerate(texts)],
        len(texts),
        low_weight=READING_VERBS,
    )


def _tool_text(tool: ToolSpec) -> str:
    """Return the beginning of a tool's description with its parameter names."""
    return f"{tool.description[:_DESCRIPTION_CHARS]} {' '.join(slot.name for slot in schema_slots(tool.parameters))}"


def _rank_tools(task: str, context: Sequence[str], tools: Sequence[ToolSpec]) -> list[_ToolCandidate]:
    """Return the tools that share words with a task, best first."""
    index = _index(tuple((tool.name, tool.description[:_DESCRIPTION_CHARS]) for tool in tools))
    words = subject_terms(task, index)
    if not words.keys() - COMMON_VERBS:
        words.update(word for word in implied_terms(task) if index.contains(word))
    options = [_candidate(tools[at], score, words, task, context) for at, score in index.scores(words).items()]
    return sorted(options, key=lambda option: (-option.score, option.tool.name))


def _candidate(tool: ToolSpec, score: float, words: Counter[str], task: str, context: Sequence[str]) -> _ToolCandidate:
    about, orders = tool.description[:_DESCRIPTION_CHARS], requested_changes(task)
    vocabulary = {*content_words(tool.name), *content_words(_tool_text(tool))}
    changes = is_write_tool(tool.name, about)
    filled = fill_arguments(tool.parameters, task, context, f"{tool.name} {about}", no_free_text=changes)
    requested = changes and performs(tool.name, about, orders)
    score = (score + filled.used / (len(extract_values(task)) or 1)) * _CONTEXT_FACTOR**filled.from_context
    score *= _OTHER_CHANGE_FACTOR if orders and not requested else 1.0
    return _ToolCandidate(tool, score, frozenset(vocabulary & words.keys()), filled, changes, requested)


def _choose_tools(
    task: str, context: Sequence[str], tools: Sequence[ToolSpec], earlier: list[tuple[str, str]]
) -> list[_ToolCandidate] | str:
    """Return the tools to call: the best one, or one for each item of a list; or an explanation.

    Write tools are never used for a task that requests no change, nor after an earlier call.
    """
    ranked = [option for option in _rank_tools(task, context, tools) if _is_relevant(option, task)]
    new = [option for option in ranked if not _was_called(option, earlier) and not (earlier and option.changes)]
    fresh = [option for option in new if option.requested or not option.changes]
    unsure = requested_changes(task) - VAGUE_VERBS and not any(option.requested for option in fresh)
    for option in new:
        if option.changes and unsure:
            return f"I can't tell whether the task “{task}” means {option.tool.name}."
    able = [option for option in fresh if not option.filled.missing]
    if not able or able[0].score < _COMPARABLE_SCORE * fresh[0].score:
        return _explain_failure(task, fresh, bool(earlier))
    several = [] if earlier or able[0].changes else _tools_of_list(task, context, tools)
    return several or [able[0]]


def _tools_of_list(task: str, context: Sequence[str], tools: Sequence[ToolSpec]) -> list[_ToolCandidate]:
    """Return the tools for lists such as "disk and memory" if each item has its own tool, else none."""
    found: dict[str, _ToolCandidate] = {}
    for segment in _segments(task):
        best = next(iter(_rank_tools(segment, [task, *context], tools)), None)
        usable = best and best.matched - COMMON_VERBS and not best.filled.missing and not best.changes
        if best and usable and content_words(mask_values(segment)):
            found.setdefault(best.tool.name, best)
    return list(found.values())[:_MOST_TOOLS] if len(found) > 1 else []


def _segments(task: str) -> list[str]:
    cuts = [match.span() for match in _AND.finditer(mask_values(task))]
    starts, ends = [0, *(end for _, end in cuts)], [*(start for start, _ in cuts), len(task)]
    return [task[start:end] for start, end in zip(starts, ends, strict=True)]


def _was_called(option: _ToolCandidate, earlier: list[tuple[str, str]]) -> bool:
    return all((option.tool.name, canonical(arguments)) in earlier for arguments in option.filled.arguments)


def _is_relevant(option: _ToolCandidate, task: str) -> bool:
    """Return whether a tool shares a noun with the task; for a task with values only, a verb is enough."""
    things = set(content_words(mask_values(task))) - COMMON_VERBS
    return bool(option.matched - COMMON_VERBS) if things else bool(option.matched)


def _explain_failure(task: str, options: list[_ToolCandidate], tried: bool) -> str:
    if tried:
        return "All tools that fit this task were tried."
    lacking = [
        option for option in options if option.filled.missing and option.score >= _COMPARABLE_SCORE * options[0].score
    ]
    best = min(lacking, key=lambda option: len(option.filled.missing), default=None)
    if best is None:
        return f"No tool here fits the task “{task}”."
    needed = ", ".join(_slot_text(slot) for slot in best.filled.missing)
    unclear = (
        f" I can't tell what {', '.join(best.filled.unmatched_names)} stands for."
        if best.filled.unmatched_names
        else ""
    )
    return f"{best.tool.name} needs {needed}, which the task doesn't name.{unclear}"


def _slot_text(slot: Slot) -> str:
    hint = re.split(r"\.\s|\n|\s\(", slot.description)[0].strip(" .")[:_HINT_CHARS]
    return f"`{slot.name}` ({hint})" if hint else f"`{slot.name}`"
