"""How models mark their reasoning: what begins it, what ends it, and what around it is left out.

Markers between `<` and `>` are found in any case. Their forms are those that the families in
`tests/data/model_outputs/README.md` document.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

_TAGS: Final = ("think", "thinking", "reasoning", "thought", "seed:think", "mm:think")
# Kimi and DeepSeek sometimes call tools without ending their reasoning.
_CALLS: Final = ("<|tool_calls_section_begin|>", "<｜tool▁calls▁begin｜>")
_LEADING_TAGS: Final = ("analysis", "reflection", "scratchpad")  # at the start of an answer only
PAIRED: Final = frozenset({"<think>", "<thinking>"})  # with an end they are reasoning wherever they aren't quoted
_CHANNELS_SHOWN: Final = ("final", "commentary", "final<|constrain|>json", "final <|constrain|>json")


@dataclass(frozen=True, slots=True)
class Marker:
    """How reasoning begins and how it ends. `dropped`: nothing is between, the beginning itself is left out.

    `stops` are left out of the text from here on. `lone_end`: the chat template may have begun it, so that only the
    end is in the text.
    """

    begin: str
    ends: tuple[str, ...] = ()
    kept_ends: tuple[str, ...] = ()  # end it too, and are read again as beginnings
    stops: tuple[str, ...] = ()
    dropped: bool = False
    lone_end: bool = True


def _harmony() -> tuple[Marker, ...]:
    """Return the markers of gpt-oss, which writes a space before `<|message|>` or not."""
    stops, role = ("<|end|>", "<|return|>"), "<|start|>assistant"  # a role before a recipient belongs to a tool call
    again = (role, "<|channel|>final")
    hidden = [f"<|channel|>analysis{space}<|message|>" for space in ("", " ")]
    shown = [f"<|channel|>{channel}{space}<|message|>" for channel in _CHANNELS_SHOWN for space in ("", " ")]
    return (
        *(Marker(f"{it}{header}", stops[:1], again, stops, lone_end=False) for header in hidden for it in ("", role)),
        *(Marker(f"{it}{header}", stops=stops, dropped=True) for header in shown for it in ("", role)),
        Marker(f"{role}<|message|>", stops=stops, dropped=True),
    )


MARKERS: Final = (
    *(Marker(f"<{tag}>", (f"</{tag}>",), _CALLS) for tag in _TAGS),
    Marker("[THINK]", ("[/THINK]",)),
    Marker("◁think▷", ("◁/think▷",)),
    Marker("<unused94>thought", ("<unused95>",)),  # MedGemma
    Marker("<|channel>thought", ("<channel|>",)),  # Gemma 4
    Marker("<|start_thinking|>", ("<|end_thinking|>",), stops=("<|end_of_turn_token|>",)),  # Cohere
    *(
        Marker(f"<|start_{name}|>", stops=(f"<|end_{name}|>", "<|end_of_turn_token|>"), dropped=True)
        for name in ("response", "text")
    ),
    Marker("<|begin_of_thought|>", ("<|end_of_thought|>",)),
    Marker("<|begin_of_solution|>", stops=("<|end_of_solution|>",), dropped=True),
    *_harmony(),
)
_LEADING: Final = tuple(Marker(f"<{tag}>", (f"</{tag}>",), _CALLS, lone_end=False) for tag in _LEADING_TAGS)
MARKER_OF: Final = {marker.begin: marker for marker in MARKERS}
_ALL_BEGINNINGS: Final = {marker.begin: marker for marker in (*MARKERS, *_LEADING)}
ENDS: Final = tuple(end for marker in MARKERS if marker.lone_end for end in marker.ends)
STOPS: Final = tuple({stop: None for marker in MARKERS for stop in marker.stops})
_BEGINS_INSIDE: Final = re.compile(
    r"deepseek-?r1|\bqwq\b|qwen3.*think|minimax-?m\d|glm-?z1|kimi.*thinking|phi-?4.*reasoning|command-a-reasoning",
    re.IGNORECASE,
)
_KEEPS_MARKERS: Final = re.compile(r"minimax", re.IGNORECASE)
# Harmony from servers that leave out the special tokens and keep the words between them.
BARE_ANALYSIS: Final = re.compile(r"analysis(?=[A-Z])(.*?)assistantfinal", re.DOTALL)
_BARE_BEGINNING: Final = re.compile(r"analysis([A-Z]|$)|analysi?$|analy?$|ana?$|a$")


def plain(written: str) -> str:
    """Return a marker as `MARKERS` has it."""
    return written.lower() if written.startswith("<") else written


@lru_cache(maxsize=64)
def pattern_of(markers: Sequence[str]) -> re.Pattern[str]:
    """Return the pattern that finds these markers, the longest one first."""
    longest_first = sorted(set(markers), key=len, reverse=True)
    forms = "|".join(f"(?i:{re.escape(it)})" if it[0] == "<" else re.escape(it) for it in longest_first)
    return re.compile(f"(?=[<\\[◁])(?:{forms})")  # the first character is looked for quickly


CANDIDATES: Final = pattern_of((*MARKER_OF, *ENDS, *STOPS))
BEGINNINGS: Final = pattern_of(tuple(MARKER_OF))
_LEADING_BEGINNINGS: Final = pattern_of(tuple(_ALL_BEGINNINGS))


def begins_inside_reasoning(model: str) -> bool:
    """Whether the chat template of the model with this name begins reasoning, so that its text has only the end."""
    return bool(_BEGINS_INSIDE.search(model))


def keeps_markers(model: str) -> bool:
    """Whether the API of this model wants its reasoning back inside of the text, with the markers."""
    return bool(_KEEPS_MARKERS.search(model))


def with_markers(reasoning: str, text: str) -> str:
    """Return the text as a model wrote it that marks reasoning with `<think>`."""
    return f"<think>\n{reasoning}\n</think>\n\n{text}"


def may_hold_reasoning(text: str) -> bool:
    """Whether a marker is anywhere in a text."""
    start = text.lstrip()
    return bool(CANDIDATES.search(text)) or start.startswith("analysis") or beginning(start) is not None


def beginning(text: str) -> Marker | None:
    """Return the marker that the text begins with."""
    found = _LEADING_BEGINNINGS.match(text)
    return _ALL_BEGINNINGS[plain(found.group())] if found else None


def may_begin(text: str) -> bool:
    """Whether more text could make a marker of this."""
    known = (*_ALL_BEGINNINGS, *ENDS)
    return not text or bool(_BARE_BEGINNING.match(text)) or any(marker.startswith(plain(text)) for marker in known)


def stray_end(text: str) -> str:
    """Return the end marker that the text begins with: of reasoning that was in reasoning."""
    return next((end for end in ENDS if plain(text[: len(end)]) == end), "")


@lru_cache(maxsize=64)
def _prefixes(markers: Sequence[str]) -> tuple[int, frozenset[str]]:
    return max(map(len, markers)), frozenset(
        marker[:length] for marker in markers for length in range(1, len(marker) + 1)
    )


def unfinished(text: str, markers: tuple[str, ...]) -> int:
    """Return the length of the longest end of `text` that is the beginning of a marker."""
    longest, prefixes = _prefixes(markers)
    return next((size for size in range(min(longest, len(text)), 0, -1) if plain(text[-size:]) in prefixes), 0)
