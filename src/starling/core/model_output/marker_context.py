"""What the text before a marker says about it: whether it is the model's own, or content."""

import re
from dataclasses import dataclass, replace
from typing import Final

from starling.core.model_output.reasoning_markers import BEGINNINGS

_CLOSING: Final = {'"': '"', "'": "'", "`": "`", "“": "”", "‘": "’", "„": "“", "«": "»", "»": "«"}
_QUOTES: Final = "`'\"“”‘’«»"
_BEFORE_QUOTATION: Final = "([{<=:|/-–—"
_PUNCTUATION: Final = f"{_QUOTES},.;:!?)]…-–"
_SENTENCE_STOPS: Final = ".!?…。！？"
_SENTENCE_ENDS: Final = ".!?:…。！？)}]>"
JSON_BEGINNINGS: Final = ("{", "[{", "[\n")
_HEAD_CHARS: Final = 80
_TAIL_CHARS: Final = 8
_FENCE: Final = re.compile(r"`{3,}|~{3,}")


def is_in_quotes(before: str, after: str) -> bool:
    """Whether a marker between these texts is in quotation marks of its own, which open right before it."""
    if _CLOSING.get(before[-1:]) != after[:1]:
        return False
    outside = before[-2:-1]
    return not outside or outside.isspace() or outside in _BEFORE_QUOTATION


@dataclass(frozen=True, slots=True)
class MarkerContext:
    """What the text before a marker says about it."""

    before: str  # the last character of its line that is no space
    adjacent: str  # the two characters right before it
    quoted: bool  # an odd number of quotes or backticks is before it in its line
    announced: bool  # the line before ends with a colon
    in_fence: bool
    is_json: bool
    names_marker: bool  # a beginning that was content

    @property
    def is_quoted(self) -> bool:
        """Whether a marker here is within code or quotes."""
        return self.in_fence or self.quoted

    def allows_marker(self, after: str) -> bool:
        """Whether reasoning can begin here: at the beginning of a line, or with a sentence of its own."""
        if self.announced or self.is_json or self.is_quoted:
            return False
        return not self.before or (self.before in _SENTENCE_STOPS and _begins_sentence(after))

    def may_be_reasoning(self, after: str) -> bool:
        """Whether all this text can be reasoning that a marker ends which is followed by `after`."""
        if self.is_json or self.names_marker or self.is_quoted:
            return False
        if is_in_quotes(self.adjacent, after):
            return False
        if self.before and self.before in _QUOTES and after[:1] in _QUOTES:  # each of another quotation
            return after[1:].isalnum()
        return not self.before or self.before in _SENTENCE_ENDS or _begins_sentence(after)


def _begins_sentence(after: str) -> bool:
    """Whether an answer begins here, and not the rest of a sentence that names a marker."""
    if after[:1] == "\n" or after[:1].isalnum():
        return True
    first = after.strip()[:1]
    return bool(first) and not first.islower() and first not in _PUNCTUATION


@dataclass(slots=True)
class GivenText:
    """Follows lines, quotes and code fences of the text that was given out, without keeping it."""

    head: str = ""  # of the current line, as far as a fence is long
    tail: str = ""  # of the current line
    adjacent: str = ""  # the last two characters
    ticks: int = 0  # in the current line
    quotes: int = 0
    announced: bool = False  # the last line that is not empty ends with a colon
    fence: str = ""
    is_json: bool | None = None
    names_marker: bool = False

    def add(self, text: str) -> None:
        """Add text that follows."""
        if self.is_json is None and text.strip():
            self.is_json = text.lstrip().startswith(JSON_BEGINNINGS)
        self.names_marker = self.names_marker or bool(BEGINNINGS.search(text))
        *lines, rest = text.split("\n")
        for line in lines:
            self._extend(line)
            self._end_line()
        self._extend(rest)

    def context(self, text: str) -> MarkerContext:
        """Return the context of a marker that comes after this text, which is not given out yet."""
        ahead = replace(self)
        ahead.add(text)
        before = ahead.tail.rstrip()[-1:]
        quoted = bool(ahead.ticks % 2 or ahead.quotes % 2)
        return MarkerContext(
            before, ahead.adjacent, quoted, ahead.announced, bool(ahead.fence), bool(ahead.is_json), ahead.names_marker
        )

    def _extend(self, part: str) -> None:
        self.adjacent = (self.adjacent + part)[-2:]
        self.head = (self.head + part)[:_HEAD_CHARS]
        self.tail = (self.tail.rstrip() + part)[-_TAIL_CHARS:] if part.strip() else self.tail
        self.ticks += part.count("`")
        self.quotes += part.count('"')

    def _end_line(self) -> None:
        stripped = self.head.strip()
        if fence := _FENCE.match(stripped):
            if not self.fence:
                self.fence = fence.group()
            elif stripped.startswith(self.fence) and not stripped.strip(self.fence[0]):
                self.fence = ""
        if self.tail.strip():
            self.announced = self.tail.rstrip().endswith((":", ":**", "："))
        self.head, self.tail, self.adjacent, self.ticks, self.quotes = "", "", "", 0, 0
