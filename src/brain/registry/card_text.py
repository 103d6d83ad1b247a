"""The text of an agent's card, cut to a length: whole words, and the most telling tools first."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final
from xml.sax.saxutils import escape

from starling.core.tools import ToolDefinition

_ALL_DESCRIBED: Final = 20  # tools of an agent; of more only names are shown
_TOOL_CHARS: Final = (100, 60, 40, 25)  # of a tool's description
_MOST_ORDERED: Final = 100  # tools; not even their names have room for more
_TOOLS: Final = " Tools: "
_REASON: Final = ". Can't work now: "
_WORD: Final = re.compile(r"[A-Z]?[^\W_A-Z\d]+|[^\W_]+?(?=[A-Z]|[\W_]|$)")


def working_text(description: str, tools: Sequence[ToolDefinition], room: int, wanted: str = "") -> str:
    """Return what an agent is good for and its tools, in at most `room` characters once they are escaped.

    Where not all tools have room, those come first that share rare words with the text `wanted`.
    """
    if not tools:
        return shortened(description, room)
    names = escaped_length(", ".join(_one_line(tool.name) for tool in tools)) + len(_TOOLS)
    text = shortened(description, max(room - names, room * 2 // 5))
    return f"{text}{_TOOLS}{_tools_text(text, tools, room - escaped_length(text) - len(_TOOLS), wanted)}"


def degraded_text(description: str, reason: str, room: int) -> str:
    """Return what an agent is good for and why it can't work now, in at most `room` characters once escaped."""
    left = room - len(_REASON)
    text = shortened(description, max(left - escaped_length(_first_sentence(reason)), left * 2 // 5))
    return f"{text}{_REASON}{shortened(reason, left - escaped_length(text))}"


def shortened(text: str, room: int) -> str:
    """Return the first sentence of a text in one line; what is longer than `room` once escaped ends with `…`."""
    sentence = _first_sentence(text)
    if escaped_length(sentence) <= room:
        return sentence
    cut = sentence[:room]
    while escaped_length(cut) >= room:
        cut = cut[:-1]
    whole_words = cut if sentence[len(cut)].isspace() else cut.rpartition(" ")[0]
    return f"{(whole_words or cut).rstrip(' ,;:')}…"


def escaped_length(text: str) -> int:
    """Return the length of a text in an element."""
    return len(escape(text))


def _tools_text(description: str, tools: Sequence[ToolDefinition], room: int, wanted: str) -> str:
    described = len(tools) <= _ALL_DESCRIBED
    if described and _fits(whole := _joined(tools, dict.fromkeys(range(len(tools)), _TOOL_CHARS[0])), room):
        return whole
    order = _most_telling_first(description, tools, wanted)
    if not _fits(_joined(tools, {}), room):
        return _some_names([tools[at] for at in order], room)
    chars: dict[int, int] = {}
    for at in order if described else ():
        tried = ({**chars, at: most} for most in _TOOL_CHARS)
        chars = next((one for one in tried if _fits(_joined(tools, one), room)), chars)
    return _joined(tools, chars)


def _joined(tools: Sequence[ToolDefinition], chars: Mapping[int, int]) -> str:
    """Return all tools; `chars` says how much of the description of the tool at each place is shown."""
    return ", ".join(_tool_text(tool, chars.get(at, 0)) for at, tool in enumerate(tools))


def _some_names(tools: Sequence[ToolDefinition], room: int) -> str:
    """Return as many names as have room, and how many are missing."""
    named = list[str]()
    for tool in tools:
        text = ", ".join([*named, _tool_text(tool, 0)])
        if _fits(_with_rest(text, len(tools) - len(named) - 1), room):
            named.append(_tool_text(tool, 0))
    return _with_rest(", ".join(named), len(tools) - len(named)) if named else f"… ({len(tools)})"


def _fits(text: str, room: int) -> bool:
    return escaped_length(text) <= room


def _with_rest(text: str, others: int) -> str:
    return f"{text}, … ({others} more)" if others else text


def _most_telling_first(description: str, tools: Sequence[ToolDefinition], wanted: str) -> list[int]:
    """Return the places of the tools that share most words with a text, then of those whose names say most that is new.

    A word that several tools have counts less, one of a name counts twice.
    """
    asked, known, order = _words(wanted), _words(description), list[int]()
    names = [_words(tool.name) for tool in tools]
    texts = [_words(tool.description) for tool in tools]
    counts = Counter(word for at, words in enumerate(texts) for word in words | names[at])
    shared = [
        sum((1 + (word in name)) / counts[word] for word in asked & (name | words))
        for name, words in zip(names, texts, strict=True)
    ]
    while len(order) < min(len(tools), _MOST_ORDERED):
        left = (at for at in range(len(tools)) if at not in order)
        best = max(left, key=lambda at: (shared[at], len(names[at] - known), -len(tools[at].name)))
        known |= names[best]
        order.append(best)
    return order


def _words(text: str) -> frozenset[str]:
    return frozenset(word.casefold().rstrip("s") for word in _WORD.findall(text))


def _tool_text(tool: ToolDefinition, chars: int) -> str:
    described = shortened(tool.description, chars) if chars else ""
    return f"{_one_line(tool.name)} ({described})" if described else _one_line(tool.name)


def _first_sentence(text: str) -> str:
    return _one_line(text).split(". ", 1)[0].rstrip(".")


def _one_line(text: str) -> str:
    return " ".join(text.split())
