"""What names that people take for each other have in common. Pure."""

import unicodedata
from functools import lru_cache
from typing import Final

from confusable_homoglyphs.confusables import confusables_data

_ONE_OF_EACH: Final = (
    *(("0", "o"), ("1", "l"), ("3", "e"), ("4", "a"), ("5", "s"), ("7", "t"), ("8", "b")),
    *(("i", "l"), ("rn", "m"), ("vv", "w"), ("cl", "d")),
)
"""What looks alike in plain letters and digits, beyond Unicode's table."""


def skeleton(name: str) -> str:
    """Return what names that look alike have in common, by the table of Unicode Technical Standard 39 and by digits."""
    for form in ("NFD", "NFKC"):
        name = "".join(map(_prototype, unicodedata.normalize(form, name)))
    name = name.casefold()
    for one, other in _ONE_OF_EACH:
        name = name.replace(one, other)
    return name


@lru_cache(4_096)  # characters: names are compared with thousands of others
def _prototype(character: str) -> str:
    """Return the character or characters that stand for all that look like this one."""
    alike = [one["c"] for one in confusables_data.get(character, ())]
    if len(alike) != 1:  # it stands for others, or looks like none
        return character
    return alike[0] if len(confusables_data.get(alike[0], ())) > 1 else min(character, alike[0])
