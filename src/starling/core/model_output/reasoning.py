"""Reasoning that models write into their text, split from the answer, in whole texts and in streams.

A marker is the model's own where it begins the answer, a line or a sentence. In code, in quotations, in JSON, within a
sentence, or below a line that ends with a colon it is content; a pair of `<think>` is content in the first three only.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, Literal, Self

from starling.core.model_output.reasoning_markers import (
    BARE_ANALYSIS,
    BEGINNINGS,
    CANDIDATES,
    ENDS,
    MARKER_OF,
    PAIRED,
    STOPS,
    Marker,
    beginning,
    may_begin,
    may_hold_reasoning,
    pattern_of,
    plain,
    stray_end,
    unfinished,
)

_CLOSING: Final = {'"': '"', "'": "'", "`": "`", "“": "”", "‘": "’", "„": "“", "«": "»", "»": "«"}
_QUOTES: Final = "`'\"“”‘’«»"
_DOUBLE_QUOTES: Final = '"“”„«»'
_QUOTE_SIGN: Final = re.compile(f"[`{_DOUBLE_QUOTES}]")
_TICKS: Final = re.compile("`+")
_NAMED_TAGS: Final = re.compile(r" \S+(?: \S+)? ")  # between two tags that a sentence names
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


def _begins_sentence(after: str) -> bool:
    """Whether an answer begins here, and not the rest of a sentence that names a marker."""
    if after[:1] == "\n" or after[:1].isalnum():
        return True
    first = after.strip()[:1]
    return bool(first) and not first.islower() and first not in _PUNCTUATION


@dataclass(slots=True)
class GivenText:
    """Follows lines, quotes and code fences of text without keeping it: they say whether a marker here is content."""

    head: str = ""  # of the current line, as far as a fence is long
    tail: str = ""  # of the current line
    adjacent: str = ""  # the last two characters
    ticks: int = 0  # runs of backticks in the current line
    quotes: int = 0
    announced: bool = False  # the last line that is not empty ends with a colon
    fence: str = ""
    is_json: bool | None = None
    names_marker: bool = False  # a beginning that was content

    @property
    def before(self) -> str:
        """The last character of the line that isn't a space."""
        return self.tail.rstrip()[-1:]

    @property
    def in_fence(self) -> bool:
        """Whether what follows is in code, or in a block quotation."""
        return bool(self.fence) or self.head.lstrip().startswith(">")

    @property
    def quoted(self) -> bool:
        """Whether an odd number of quotes or backticks is before it in its line."""
        return bool(self.ticks % 2 or self.quotes % 2)

    def allows_marker(self, after: str) -> bool:
        """Whether reasoning can begin here: at the beginning of a line, or with a sentence of its own."""
        if self.announced or self.is_json or self.in_fence or self.quoted:
            return False
        return not self.before or (self.before in _SENTENCE_STOPS and _begins_sentence(after))

    def may_be_reasoning(self, after: str) -> bool:
        """Whether all this text can be reasoning that a marker ends which is followed by `after`."""
        if self.is_json or self.names_marker or self.in_fence or self.quoted or is_in_quotes(self.adjacent, after):
            return False
        if self.before and self.before in _QUOTES and after[:1] in _QUOTES:  # each of another quotation
            return after[1:].isalnum()
        return not self.before or self.before in _SENTENCE_ENDS or _begins_sentence(after)

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

    def followed_by(self, text: str) -> Self:
        """Return a copy that has this text as well."""
        ahead = replace(self)
        ahead.add(text)
        return ahead

    def _extend(self, part: str) -> None:
        self.ticks += len(_TICKS.findall(part)) - (self.adjacent[-1:] == "`" == part[:1])
        self.adjacent = (self.adjacent + part)[-2:]
        self.head = (self.head + part)[:_HEAD_CHARS]
        self.tail = (self.tail.rstrip() + part)[-_TAIL_CHARS:] if part.strip() else self.tail
        self.quotes += sum(part.count(sign) for sign in _DOUBLE_QUOTES)

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


_AHEAD: Final = 2  # characters around a marker that show whether it is quoted, or part of a sentence
_ALL: Final = (*MARKER_OF, *ENDS, *STOPS)

type Kind = Literal["text", "reasoning", "retraction"]


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of an answer. A retraction says that all text before it was reasoning."""

    kind: Kind
    text: str = ""


@dataclass(frozen=True, slots=True)
class SplitAnswer:
    """An answer without its reasoning. `began_inside`: an end marker came without a beginning."""

    text: str
    reasoning: str
    began_inside: bool = False


def split_reasoning(text: str, *, begins_inside: bool = False, cut: bool = False) -> SplitAnswer:
    """Return a whole answer, split.

    One that was cut off without a marker is reasoning if its model `begins_inside` of reasoning.
    """
    held_back = begins_inside and cut
    if not (held_back or may_hold_reasoning(text)):
        return SplitAnswer(text, "")
    splitter = ReasoningSplitter(held=held_back)
    answer, reasoning = "", ""
    for piece in [*splitter.feed(text), *splitter.finish(cut=cut)]:
        if piece.kind == "retraction":
            reasoning, answer = f"{reasoning}{answer}\n\n", ""
        elif piece.kind == "reasoning":
            reasoning += piece.text
        else:
            answer += piece.text
    reasoning, began_inside = reasoning.strip(), splitter.began_inside
    return SplitAnswer(answer.strip() if reasoning or began_inside else answer, reasoning, began_inside)


@dataclass(slots=True)
class ReasoningSplitter:
    """Splits a streamed answer; `feed` holds back what could be the beginning of a marker.

    With `held`, nothing is given out before an end marker, or the end of the answer, shows what the beginning was.
    """

    held: bool = False
    _buffer: str = ""
    _marker: Marker | None = None
    _at_start: bool = True
    _split: bool = False  # reasoning was found
    _stops: frozenset[str] = frozenset()  # of the family whose marker was found
    began_inside: bool = False
    _nested: int = 0  # beginnings within the reasoning that have no end yet
    _given: GivenText = field(default_factory=GivenText)

    def feed(self, text: str) -> list[Piece]:
        """Return the pieces that `text` completes."""
        self._buffer += text
        return list(self._pieces(final=False))

    def finish(self, *, cut: bool = False) -> list[Piece]:
        """Return the rest. Reasoning that was not closed stays reasoning, and so does what is held of a `cut` text."""
        if self.held and cut and not self._buffer.lstrip().startswith(JSON_BEGINNINGS):
            return [Piece("reasoning", self._buffer)]
        self.held = False
        pieces = list(self._pieces(final=True))
        self._buffer = ""
        return pieces

    def _pieces(self, *, final: bool) -> Iterable[Piece]:
        while self._buffer:
            before = (len(self._buffer), self._marker, self._at_start, self._stops)
            if self._marker is not None:
                yield from self._inside(self._marker, final=final)
            elif self._at_start:
                yield from self._start(final=final)
            else:
                yield from self._text(final=final)
            if before == (len(self._buffer), self._marker, self._at_start, self._stops):
                return

    def _start(self, *, final: bool) -> Iterable[Piece]:
        """Read what begins the answer, or follows reasoning: a marker, or the text itself."""
        rest = self._buffer.lstrip()
        if marker := beginning(rest):
            self._enter(marker, rest)
        elif self._split and (end := stray_end(rest)):
            self._buffer = rest[len(end) :]
        elif bare := BARE_ANALYSIS.match(rest):
            self._buffer, self._split = rest[bare.end() :], True
            yield Piece("reasoning", bare.group(1))
        elif final or not may_begin(rest):
            self._buffer = rest if self._split and not self._given.adjacent[-1:].strip() else self._buffer
            self._at_start = False

    def _enter(self, marker: Marker, rest: str) -> None:
        self._buffer = rest[len(marker.begin) :]
        self._split = True
        self.held = False
        self._stops |= frozenset(marker.stops)
        self._marker = None if marker.dropped else marker
        self._at_start = True

    def _inside(self, marker: Marker, *, final: bool) -> Iterable[Piece]:
        at, end = _first_end(self._buffer, marker, final=final)
        found = bool(end)
        if not found:
            unsure = unfinished(self._buffer, (marker.begin, *marker.ends, *marker.kept_ends)) + _AHEAD
            at = len(self._buffer) if final else max(0, len(self._buffer) - unsure)  # with a quote before the marker
        is_end = plain(end) in marker.ends
        nested = self._nested + sum(it.start() < at for it in _unquoted(self._buffer, (marker.begin,)))
        rest = self._buffer[at + (len(end) if is_end else 0) :]
        if is_end and nested:  # it is the inner one's if the outer reasoning has an end as well
            if _is_closed(rest, marker, nested):
                found, nested = False, nested - 1
            elif not final:
                return
        if at:
            yield Piece("reasoning", self._buffer[:at])
        self._buffer, self._nested = rest, nested
        if found:
            yield Piece("reasoning", "\n\n")
            self._marker, self._at_start, self._nested = None, True, 0

    def _text(self, *, final: bool) -> Iterable[Piece]:
        """Give out text up to a marker at the beginning of a line, a stop of Harmony, or an end without beginning."""
        context, seen = self._given, 0  # what is before the next candidate, and how much of the buffer that has
        for match in CANDIDATES.finditer(self._buffer):
            at, found = match.start(), plain(match.group())
            after = self._buffer[match.end() : match.end() + _AHEAD]
            if len(after) < _AHEAD and not final:
                break
            context, seen = context.followed_by(self._buffer[seen:at]), at
            if found in ENDS and not self._split and context.may_be_reasoning(after):
                yield from self._retract(at, found)
                return
            if not self.held and found in self._stops and not (context.in_fence or context.quoted):
                yield from self._give(at)
                self._buffer, self._at_start = self._buffer[len(found) :], True
                return
            marker = None if self.held else MARKER_OF.get(found)
            begins = marker and (
                context.allows_marker(after) or self._is_pair(match.end(), marker, context, final=final)
            )
            if marker and begins is not False:
                yield from self._give(at)
                if begins:
                    self._enter(marker, self._buffer)
                return
        if final:
            yield from self._give(len(self._buffer))
        elif not self.held:
            yield from self._give(len(self._buffer) - self._kept())

    def _is_pair(self, begin: int, marker: Marker, context: GivenText, *, final: bool) -> bool | None:
        """Whether this is reasoning with an end, outside of quotations; None where the end may still come."""
        rest = self._buffer[begin:]
        at, end = _first_end(rest, marker, final=final)
        after = rest[at + len(end) :]
        if marker.begin not in PAIRED or context.is_json or context.in_fence:
            return False
        if (at < 0 or len(after) < _AHEAD or (context.quoted and "\n" not in after)) and not final:
            return None
        are_named = _NAMED_TAGS.fullmatch(rest[:at]) and after[:1] == " " and after[1:2].islower()
        if plain(end) not in marker.ends or are_named or is_in_quotes(context.adjacent, after[:1]):
            return False
        return not (context.quoted and _QUOTE_SIGN.search(after.partition("\n")[0]))

    def _retract(self, at: int, end: str) -> Iterable[Piece]:
        """Turn the text up to an end marker into reasoning."""
        if self.held:
            yield Piece("reasoning", self._buffer[:at])
            self._buffer = self._buffer[at:]
        else:
            yield from self._give(at)
            yield Piece("retraction")
        self._buffer, self._at_start = self._buffer[len(end) :], True
        self._split, self.began_inside, self.held = True, True, False
        self._given = GivenText()  # the answer begins here

    def _kept(self) -> int:
        """Return how much of the end of the buffer may belong to a marker."""
        size = len(self._buffer)
        last = next((match.start() for match in CANDIDATES.finditer(self._buffer) if match.end() + _AHEAD > size), size)
        return max(size - last, unfinished(self._buffer, _ALL))

    def _give(self, count: int) -> Iterable[Piece]:
        if count > 0:
            self._given.add(self._buffer[:count])
            yield Piece("text", self._buffer[:count])
            self._buffer = self._buffer[count:]


def _unquoted(text: str, markers: tuple[str, ...]) -> Iterator[re.Match[str]]:
    """Yield the markers in reasoning that aren't in quotes."""
    for found in pattern_of(markers).finditer(text):
        before, after = text[max(0, found.start() - _AHEAD) : found.start()], text[found.end() : found.end() + 1]
        if not is_in_quotes(before, after):
            yield found


def _is_closed(text: str, marker: Marker, depth: int) -> bool:
    """Whether all reasoning of this marker has an end in `text`, where it is `depth` levels deep."""
    for found in _unquoted(text, (marker.begin, *marker.ends, *marker.kept_ends)):
        depth += 1 if plain(found.group()) == marker.begin else -1
        if not depth or plain(found.group()) in marker.kept_ends:
            return plain(found.group()) in marker.ends
    return False


def _first_end(text: str, marker: Marker, *, final: bool) -> tuple[int, str]:
    """Return where reasoning ends and by what, (-1, "") where it does not. An end in quotes is part of it."""
    found = next(_unquoted(text, (*marker.ends, *marker.kept_ends)), None)
    is_sure = found is not None and (final or found.end() < len(text))
    return (found.start(), found.group()) if found and is_sure else (-1, "")
