"""Tests of texts by lists of English words: whether one is an error, lacks something, or says that a value is wrong.

A text in another language passes none of them. What it came from is then told by states, codes, order, values, equal
results and what programs write alike in every language (see `texts`).
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from brain.explanation.texts import is_machine_error, is_server_fault, is_unfilled
from starling.core.json import Json

_SHORT: Final = 300
_READ: Final = 600  # characters of a text that its language is told by
_FEW: Final = 6  # words; a request of so many in English has a word of `_ENGLISH`
_LETTERS: Final = re.compile(r"[^\W\d_]+")
# Words that nearly every English sentence has one of, without those that are words of other languages as well.
_ENGLISH_TEXT: Final = """
    the of and to is are were be been being it its this that these those there with not for from by has have having
    had does did doing can could should would must may which what when where because cannot only your you they after
    before between any each every more than then how who why please don doesn didn isn aren wasn couldn"""
# Words that nearly every sentence of one of the most written languages in Latin letters has one of.
_OTHERS_TEXT: Final = """
    der das dem ein eine einen einem einer und oder nicht kein keine keinen ist sind wird wurde wurden auf mit von zu im
    bei nach aus ich wir sie sich auch noch nur schon für über
    el los las una unas que y es está están por para con hay ningún ninguna su al lo como pero muy todo nada
    le les des une et est sont dans avec il elle du au ce cette qui ne pas sur aux
    gli della dello dei che di non sono questo questa nel nella alla
    os da das dos uma não em ao pelo pela isso
    het een niet zijn voor naar deze geen wordt
    och att det som är inte på av ikke er til ikke jeg
    jest nie się na ve bir için
    de la"""
_ENGLISH: Final = frozenset(_ENGLISH_TEXT.split())
_OTHERS: Final = frozenset(_OTHERS_TEXT.split())


@lru_cache(1024)
def _is_english(beginning: str) -> bool | None:
    """Return whether a text is English by its beginning, None where that tells too little."""
    words = _LETTERS.findall(beginning.casefold())
    own = sum(word in _ENGLISH for word in words)
    others = sum(word in _OTHERS or not word.isascii() for word in words)
    return (own > 0 and own >= others) if own or others else None


def are_english(texts: Iterable[str]) -> bool:
    """Return whether texts are English as a whole; a few words that could be of any language count as English."""
    beginning = " ".join(texts)[:_READ]
    known = _is_english(beginning)
    return len(_LETTERS.findall(beginning)) < _FEW if known is None else known


def _beginning(*patterns: str) -> re.Pattern[str]:
    """Return what finds one of these at the beginning of a text, after quotes and the like."""
    return re.compile(rf"^\W{{0,3}}(?:{'|'.join(patterns)})", re.IGNORECASE)


def _anywhere(*patterns: str) -> re.Pattern[str]:
    """Return what finds one of these words or phrases in a text."""
    return re.compile(rf"\b(?:{'|'.join(patterns)})\b", re.IGNORECASE)


_LEADING_ERROR: Final = _beginning(
    r"[\w.]*(?:error|exception|fault)\b\s*(?:[:!(\[–—]|-\s|-?\d|calling|executing|while|when|in\b)",
    r"fatal\b",
)
_LEADING_FAILURE: Final = _beginning(
    r"the (?:call|request|query|tool|operation|lookup|search) (?:has )?failed\b",
    *(r"failed to\b", r"failure:", r"failed:", r"unable to\b", r"could(?: not|n't)\b", r"can(?:not|'t)\b"),
    *(r"(?:access|permission) denied\b", r"unauthori[sz]ed\b", r"forbidden\b", r"no such\b", r"invalid\b"),
    *(r"(?:connection|request) (?:was )?(?:refused|timed out)", r"timed?[ -]?out\b", r"bad request\b"),
    *(r"internal server error\b", r"service unavailable\b", r"not found\b", r"rate limit", r"too many requests\b"),
    *(r"null$", r"undefined$", r"none$"),
)
_TRAILING_FAILURE: Final = re.compile(
    r"\b(?:not found|does(?: not|n't) exist|is(?: not|n't) available|is unavailable|timed out|was refused|has failed|"
    r"failed)\W*$",
    re.IGNORECASE,
)
_INFRASTRUCTURE: Final = _anywhere(
    *("unavailable", "unreachable", "overloaded", "timed?[ -]?out", "no route to host", "bad gateway", "backend"),
    *("connection (?:was )?(?:refused|reset|lost|closed|aborted)", "gateway time-?out", "internal server error"),
    "(?:can(?:not|'t)|could(?: not|n't)) (?:be )?(?:reach|connect)\\w*",
    *(r"rate.?limit\w*", "too many requests", "temporar(?:y|ily)", "try again later"),
    *("maintenance", "offline", "is down", "went down", "degraded", "out of service", "no response"),
    "did(?: not|n't) (?:respond|answer)",
)
_BAD_VALUE: Final = _anywhere(
    *("invalid", "illegal", "malformed", "unsupported", "unrecogni[sz]ed", "unknown", "unexpected", "not (?:a )?valid"),
    *("must (?:be|have|not)", "should be", "expected", "out of range", "not (?:allowed|accepted|supported)", "wrong"),
    *("too (?:long|short|large|small|big|many|few)", "validation", "required", "missing", "argument", "parameter"),
    *("format", "not found", "no such", "does(?: not|n't) exist", "bad request", "at (?:least|most)", "only accepts"),
    *(r"no \w+ (?:named|called|with)", "can(?:not|'t) parse"),
)
_ABSENT: Final = _anywhere(
    *("not found", "no such", "do(?:es)?(?: not|n't) exist", "did(?: not|n't) exist", "missing", "unknown", "nothing"),
    *("not (?:yet )?(?:there|created|available|known|present|ready|exist)", "empty", "not yet", "has(?: not|n't)"),
    "there (?:is|are|was|were) no",
    r"no \w+ (?:found|named|called|with|yet)",
)
_LACKING: Final = _anywhere(
    *("missing", r"lack\w*", "without", "not yet", "unknown", "nothing to", "has(?: not|n't)", "no such", "empty"),
    "(?:is|are|was|were)(?: not|n't) (?:yet )?(?:available|known|given|provided|there|ready|done|present|clear)",
    "(?:do|does|did|have)(?: not|n't) (?:yet )?(?:have|know|contain|include|exist|been|got|say|name|see|provide)",
    "no (?:data|information|results?|figures?|input|details?|values?|content|text|numbers?)",
    *(r"need\w*", r"requir\w+", "not (?:found|given|provided|available|known)", "must (?:first|be|have)", "first"),
    *("before", r"depend\w*", r"wait\w*", "there (?:is|are) no", "undefined", "until", "once"),
)
_SAID_TO_LACK: Final = _anywhere(
    "(?:is|are|was|were)(?: not|n't) (?:yet )?(?:available|known|given|provided|present|included)",
    *("not (?:yet )?(?:available|known|given|provided)", "missing", "unknown", r"lack\w*"),
    *("no (?:data|information|results?|figures?|details?|values?)", "(?:do|does|did)(?: not|n't) (?:yet )?have"),
)
_PLACEHOLDER: Final = re.compile(
    r"\s*(?:unknown|placeholder|pending|(?:the )?(?:result|output|answer|value)s? (?:of|from) .{1,80}|"
    r"(?:from|see|of) (?:task |step )?t?\d{1,3}|to be (?:determined|filled|found|defined)|not (?:yet )?known)\s*",
    re.IGNORECASE,
)
_NEGATIONS: Final = frozenset(
    {"not", "no", "never", "none", "cannot", "without", "out", "unavailable", "closed", "failed"}
)
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+|\n+")


@dataclass(frozen=True, slots=True)
class English:
    """Reads the texts of a run as English. `by_default`: texts whose language can't be told are, as the request is."""

    by_default: bool = True

    def reads(self, text: str) -> bool:
        """Return whether a text is English."""
        known = _is_english(text[:_READ])
        return self.by_default if known is None else known

    def looks_like_error(self, text: str) -> bool:
        """Whether what a tool answered is an error and no result, though the tool did not mark it as one."""
        plain = text.strip()
        if is_machine_error(plain):
            return True
        if plain[:1] in ("{", "["):
            return False
        found = _LEADING_ERROR.match(plain[:_SHORT]) is not None
        found = found or (len(plain) <= _SHORT and bool(_LEADING_FAILURE.match(plain) or _ends_as_failure(plain)))
        return found and self.reads(plain)

    def is_infrastructure(self, text: str) -> bool:
        """Whether an error says that a service could not answer, whatever it was asked."""
        return is_server_fault(text) or (_INFRASTRUCTURE.search(text) is not None and self.reads(text))

    def is_about_values(self, text: str) -> bool:
        """Whether an error says that something it was given is wrong."""
        return _BAD_VALUE.search(text) is not None and self.reads(text)

    def says_absent(self, text: str) -> bool:
        """Whether a text says that a thing is not there."""
        return _ABSENT.search(text) is not None and self.reads(text)

    def may_say_absent(self, text: str) -> bool:
        """Whether a text says that a thing is not there, or is in a language in which that can't be told."""
        return not self.reads(text) or self.says_absent(text)

    def lacking_sentences(self, text: str, *, surely: bool = False) -> Iterator[str]:
        """Yield the sentences that say that something is missing; `surely` leaves out those that may say less."""
        pattern = _SAID_TO_LACK if surely else _LACKING
        return (one for one in _SENTENCE_END.split(text) if pattern.search(one) and self.reads(text))

    def is_placeholder(self, value: Json) -> bool:
        """Whether an argument stands for a value that its writer did not have."""
        if is_unfilled(value):
            return True
        return isinstance(value, str) and _PLACEHOLDER.fullmatch(value) is not None and self.reads(value)

    def are_opposite(self, text: str, other: str) -> bool:
        """Whether one of two English texts negates and the other does not."""
        first, second = set(text.casefold().split()), set(other.casefold().split())
        return self.reads(text) and self.reads(other) and bool(first & _NEGATIONS) != bool(second & _NEGATIONS)


def _ends_as_failure(text: str) -> bool:
    return len(text) <= _SHORT // 2 and len(text.splitlines()) == 1 and _TRAILING_FAILURE.search(text) is not None
