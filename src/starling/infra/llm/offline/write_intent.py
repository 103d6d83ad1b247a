"""Write intent: the changes that a task requests, and the tools that make changes."""

import re

from starling.infra.llm.offline.tokenization import CHANGE_STEMS, CHANGE_WORDS, READING_VERBS, normalize, stem, tokens
from starling.infra.llm.offline.value_extraction import mask_values

_SENTENCE = re.compile(r"[^.!?;\n]+(?:[.!?;](?!\s|$)[^.!?;\n]*)*[.!?;]?")
_WORD = re.compile(r"[^\W\d_]+")
_POLITE = re.compile(r"please|kindly|can|could|would|will|you|just|now|then|also|and|i|d|want|need|like|to|let|us|s|me")
_ASKED_POLITELY = re.compile(r"\W*(?:please\W+)?(?:can|could|would|will) you\b")
_IN_A_PLACE = re.compile(r"\b(?:in|at|on|for)\s+\ufffc+")  # masked text, as in "In /r, commit …"
_OPENING_VERBS = re.compile(r"\w+(?:(?:,? (?:or|and) |, |/)\w+)*")  # "Move or rename files"
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def requested_changes(task: str) -> frozenset[str]:
    """Return the stems of the requested changes: imperatives at the start of sentences that are not questions."""
    return frozenset(filter(None, map(_change_verb, _SENTENCE.findall(mask_values(task)))))


def is_write_tool(name: str, description: str = "") -> bool:
    """Return whether a tool changes something, by the first verb of its name, else of its description."""
    words = _WORD.findall(_CAMEL.sub("_", name.rpartition(".")[2]).replace("_", " ").casefold())
    verb = next((word for word in words if word in CHANGE_WORDS or stem(word) in READING_VERBS), "")
    return verb in CHANGE_WORDS if verb else not CHANGE_STEMS.isdisjoint(tokens(description)[:1])


def performs(name: str, description: str, orders: frozenset[str]) -> bool:
    """Return whether name or description of a tool contain one of the requested changes."""
    opening = _OPENING_VERBS.match(description.strip())
    return not orders.isdisjoint({*tokens(name), *(tokens(opening[0]) if opening else ())})


def _change_verb(sentence: str) -> str:
    text = normalize(sentence)
    if text.rstrip().endswith("?") and not _ASKED_POLITELY.match(text):
        return ""
    first = next((word for word in _WORD.findall(_IN_A_PLACE.sub("", text)) if not _POLITE.fullmatch(word)), "")
    return stem(first) if first in CHANGE_WORDS else ""
