"""Texts in the form in which they are compared."""

import re
import unicodedata

_WORD = re.compile(r"[^\W_]+")


def folded(text: str) -> str:
    """Return a text without differences of case, white space and forms of one character."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def plain_words(text: str) -> list[str]:
    """Return the words of a text in order, folded, without punctuation."""
    return _WORD.findall(folded(text))


def says_something(text: str) -> bool:
    """Return whether a text has at least two letters or digits."""
    return sum(map(len, plain_words(text))) > 1
