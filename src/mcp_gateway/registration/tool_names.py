"""Names of tools: which are usable, what agents and models call them, and which are refused. Pure."""

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from starling.core.artifacts import READ_ARTIFACT
from starling.core.json import storable_text
from starling.core.look_alike_names import skeleton
from starling.core.text_screening import is_hidden
from starling.core.tools import CONTINUE, FIND_TOOLS, READ_RESOURCE

MAX_CHARS: Final = 128
_SHOWN_CHARS: Final = 60
_HANDOFF: Final = "transfer_to_"
_RESERVED: Final = frozenset({CONTINUE, FIND_TOOLS, READ_ARTIFACT, READ_RESOURCE})
_REPLACED: Final = re.compile(r"[ !]+")
_ALLOWED_MARKS: Final = "_-./:@+"


def alias_of(name: str) -> str:
    """Return what agents and models call a tool: its name, with spaces and `!` as `_`, none at the ends."""
    return _REPLACED.sub("_", name.strip(" !"))


def name_fault(name: object) -> str:
    """Return why a tool can't have this name, whatever else its server lists; empty if it can."""
    if not isinstance(name, str) or not name or storable_text(name) != name:
        return "it has no usable name"
    if len(name) > MAX_CHARS:
        return f"its name has {len(name)} characters; the longest may have {MAX_CHARS}"
    alias = alias_of(name)
    marks = {one for one in alias if not one.isalnum() and one not in _ALLOWED_MARKS}
    unusual = (one for one in marks if unicodedata.category(one) not in ("Mn", "Mc"))
    if refused := sorted({*unusual, *filter(is_hidden, alias)}):
        escaped = (one if one.isascii() and one.isprintable() else f"U+{ord(one):04X}" for one in refused)
        return f"its name has characters that are refused: {', '.join(escaped)}"
    if not any(one.isalnum() for one in alias):
        return "its name has no letter and no digit"
    if alias.casefold() in _RESERVED or alias.casefold().startswith(_HANDOFF):
        return f"the name {alias} is reserved for the platform"
    if not alias.isascii() and skeleton(alias).isascii():
        return "its name has letters that only look like Latin ones"
    return ""


def collisions(names: Sequence[str], approved: Collection[str] = ()) -> Mapping[int, str]:
    """Return why names of one list are refused, by position: they equal or look like others.

    Of names that look alike, one that is `approved` is kept, else one in plain letters, else the first; of equal ones
    none, since it isn't known which of them a call would reach.
    """
    found: dict[int, str] = {}
    kept: dict[str, str] = {}
    equal = {name for name, times in Counter(names).items() if times > 1}

    def precedence(position: int) -> tuple[bool, bool, bool, int]:
        name = names[position]
        return alias_of(name) not in approved, alias_of(name) != name, not name.isascii(), position

    for position in sorted(range(len(names)), key=precedence):
        name = names[position]
        if name in equal:
            found[position] = "its name is listed twice"
            continue
        alias = alias_of(name)
        forms = {f"alias {alias}", f"case {alias.casefold()}", f"glyphs {skeleton(alias)}"}
        other = next((kept[form] for form in forms if form in kept), None)
        if other is not None:
            found[position] = f"its name can't be told from {other}"
        else:
            kept |= dict.fromkeys(forms, alias)
    return found


def shown(name: object) -> str:
    """Return a name for messages: shortened and quoted, with all that isn't printable escaped."""
    return ascii(storable_text(str(name)[:_SHOWN_CHARS]))
