"""What a text is compared by: stemmed words with their pairs, and sequences of characters within words."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

_WORD: Final = re.compile(r"[^\W_]+")
_CAMEL: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
_GRAM: Final = 4  # characters; the edge of a word counts as one
_ENDINGS: Final = (("ies", "y"), ("sses", "ss"), ("ing", ""), ("ed", ""), ("es", ""), ("s", ""))
_STEM_CHARS: Final = 3
_SENTENCE_END: Final = re.compile(r"(?<=[.?!])\s+|(?<=[。！？])|\n+")
_MOST_SENTENCES: Final = 8
# frequent English words, and those that every request has
_STOP_TEXT: Final = """
    a about above after again all also am an and any are as at be because been before being below between both but
    by can could did do does doing down during each few find for from further get give had has have having he help her
    here hers him his how i if in into is it its itself just know let like me more most my need no nor not of off on
    once only or other our out over own please provide same she should show so some such tell than that the their them
    then there these they this those through to too under until up us use using ve very want was we were what when
    where which while who whom why will with would you your yours"""
_STOP_WORDS: Final = frozenset(_STOP_TEXT.split())


def sentences(text: str) -> list[str]:
    """Return the sentences of a text, the whole text if it has none; what follows the seventh counts as one."""
    parts = _SENTENCE_END.split(text, maxsplit=_MOST_SENTENCES - 1)
    return [part for part in parts if _WORD.search(part)] or [text]


def plain_words(text: str) -> list[str]:
    """Return the words of a text in lower case; `camelCase` is two words."""
    return [word.lower() for word in _WORD.findall(_CAMEL.sub(" ", text))]


def content_words(text: str) -> list[str]:
    """Return the words of a text without stop words."""
    return [word for word in plain_words(text) if word not in _STOP_WORDS]


def word_features(words: Sequence[str]) -> Iterator[str]:
    """Yield the stem of each word and each pair of neighbouring stems."""
    stems = list(map(stem, words))
    yield from stems
    for first, second in pairwise(stems):
        yield f"{first} {second}"


def character_features(words: Sequence[str]) -> Iterator[str]:
    """Yield each sequence of four characters of each word."""
    for word in words:
        edged = f"#{word}#"
        for start in range(max(1, len(edged) - _GRAM + 1)):
            yield edged[start : start + _GRAM]


def stem(word: str) -> str:
    """Return a word without its ending: `orders` and `ordered` are one."""
    for ending, instead in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _STEM_CHARS and not word.endswith("ss"):
            return word[: -len(ending)] + instead
    return word
