"""Finds texts that try to instruct an agent: a skill that they had a part in is kept in quarantine. Pure."""

import re
from collections.abc import Iterable
from typing import Final

_INSTRUCTIONS: Final = re.compile(
    r"""
    \b(?:ignore|disregard|forget|override)\b[^.\n]{0,40}\b(?:previous|prior|above|earlier|instructions?|rules?|prompts?)\b
    | \b(?:system|developer)\s+prompt\b
    | \b(?:from\s+now\s+on|for\s+all\s+future|in\s+(?:all\s+)?future\s+(?:tasks|requests|runs))\b
    | \b(?:always|never)\s+(?:call|use|invoke|run|look\s+up|send|answer|reply|say)\b
    | \bremember\b\s*[:,]
    | \byou\s+(?:must|are\s+now|have\s+to)\b
    | \b(?:do\s+not|don't)\s+(?:tell|mention|reveal|inform)\b
    | <\s*/?\s*(?:system|skill|task|instructions?|user_request|assistant)\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_HIDDEN: Final = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2064\U000e0000-\U000e007f]")


def suspicion(texts: Iterable[str]) -> str:
    """Return what in a text tries to instruct its reader, empty if nothing does."""
    for text in texts:
        if _HIDDEN.search(text):
            return "A text has characters that aren't shown."
        if found := _INSTRUCTIONS.search(text):
            return f"A text tries to instruct: “{found[0].strip()}”."
    return ""
