"""The difference between two definitions of a tool as text, in which nothing is hidden. Pure."""

import json
import unicodedata
from difflib import unified_diff
from typing import Final

from starling.core.json import JsonObject

_HIDDEN: Final = frozenset({"Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp"})


def definition_diff(approved: JsonObject | None, offered: JsonObject | None) -> str:
    """Return a unified diff of the canonical definitions, all lines of one where there is no other.

    Characters that aren't shown, or that change how others are shown, are escaped.
    """
    lines = unified_diff(_lines(approved), _lines(offered), "approved", "offered", lineterm="", n=3)
    return "\n".join(lines)


def _lines(definition: JsonObject | None) -> list[str]:
    if definition is None:
        return []
    text = json.dumps(definition, indent=2, sort_keys=True, ensure_ascii=False)
    return ["".join(map(_shown, line)) for line in text.split("\n")]


def _shown(character: str) -> str:
    if character.isprintable() or unicodedata.category(character) not in _HIDDEN:
        return character
    return f"\\u{ord(character):04x}" if ord(character) <= 0xFFFF else f"\\U{ord(character):08x}"
