"""Names that an author may have meant, and texts in the form in which they are compared."""

import re
import unicodedata
from collections.abc import Iterable

from starling.core.model_output.names import near_matches


def did_you_mean(written: str, names: Iterable[str], otherwise: str, prefix: str = "") -> str:
    """Return a remedy that names, after `prefix`, those of `names` that are like `written`, else `otherwise`."""
    near = [repr(f"{prefix}{name}") for name in near_matches(written, names)]
    return f"Did you mean {' or '.join(near)}?" if near else otherwise


_WORD = re.compile(r"[^\W_]+")


def folded(text: str) -> str:
    """Return a text without differences of case, white space and forms of one character."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def contains(text: str, wanted: str) -> bool:
    """Return whether a text has another one in it, folded; a digit at its end isn't the middle of a longer number."""
    value = folded(wanted)
    begin, end = (r"(?<!\d)" if value[:1].isdigit() else ""), (r"(?!\d)" if value[-1:].isdigit() else "")
    return bool(value and re.search(f"{begin}{re.escape(value)}{end}", folded(text)))


def plain_words(text: str) -> list[str]:
    """Return the words of a text in order, folded, without punctuation."""
    return _WORD.findall(folded(text))


def says_something(text: str) -> bool:
    """Return whether a text has at least two letters or digits."""
    return sum(map(len, plain_words(text))) > 1
