"""Reasoning that models write into their text, split from the answer, in whole texts and in streams.

A marker is the model's own where it begins the answer, a line or a sentence. In code, in quotes, in JSON, within a
sentence, or below a line that ends with a colon it is content.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

_TAGS: Final = ("think", "thinking", "reasoning", "thought", "seed:think", "mm:think")
_FINAL: Final = "<|channel|>final"
_STOPS: Final = ("<|end|>", "<|return|>")


@dataclass(frozen=True, slots=True)
class _Marker:
    """How reasoning begins and how it ends. `dropped`: nothing is between, the beginning itself is left out."""

    begin: str
    ends: tuple[str, ...] = ()
    kept_ends: tuple[str, ...] = ()  # end it too, and are read again as beginnings
    dropped: bool = False


_MARKERS: Final = (
    *(_Marker(f"<{tag}>", (f"</{tag}>",)) for tag in _TAGS),
    _Marker("[THINK]", ("[/THINK]",)),
    _Marker("◁think▷", ("◁/think▷",)),
    _Marker("<|channel|>analysis<|message|>", ("<|end|>",), ("<|start|>assistant", _FINAL)),
    _Marker("<|start|>assistant", dropped=True),
    _Marker(f"{_FINAL}<|message|>", dropped=True),
    _Marker("<|channel|>commentary<|message|>", dropped=True),
)
_HARMONY: Final = "<|"
_ENDS: Final = tuple(end for marker in _MARKERS[:-4] for end in marker.ends)  # that may come without a beginning
_BEGINS_INSIDE: Final = re.compile(
    r"deepseek-?r1|\bqwq\b|qwen3.*think|minimax-?m\d|glm-?z1|kimi.*thinking|phi-?4.*reasoning", re.IGNORECASE
)
_KEEPS_MARKERS: Final = re.compile(r"minimax", re.IGNORECASE)
_QUOTES: Final = "`'\"“”‘’«»"
_PUNCTUATION: Final = f"{_QUOTES},.;:!?)]…-–"
_SENTENCE_STOPS: Final = ".!?…。！？"
_SENTENCE_ENDS: Final = ".!?:…。！？)}]>"
_HEAD_CHARS: Final = 80
_TAIL_CHARS: Final = 8
_AHEAD: Final = 2  # characters after a marker that show whether it is quoted, or part of a sentence

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


def begins_inside_reasoning(model: str) -> bool:
    """Whether the chat template of the model with this name begins reasoning, so that its text has only the end."""
    return bool(_BEGINS_INSIDE.search(model))


def keeps_markers(model: str) -> bool:
    """Whether the API of this model wants its reasoning back inside of the text, with the markers."""
    return bool(_KEEPS_MARKERS.search(model))


def with_markers(reasoning: str, text: str) -> str:
    """Return the text as a model wrote it that marks reasoning with `<think>`."""
    return f"<think>\n{reasoning}\n</think>\n\n{text}"


def split_reasoning(text: str) -> SplitAnswer:
    """Return a whole answer, split."""
    if not (any(sign in text for sign in _SIGNS) or text.lstrip().startswith("analysis")):
        return SplitAnswer(text, "")
    splitter = ReasoningSplitter()
    return joined([*splitter.feed(text), *splitter.finish()])


def joined(pieces: Iterable[Piece]) -> SplitAnswer:
    """Return the answer that these pieces make up."""
    text, reasoning, began_inside = "", "", False
    for piece in pieces:
        if piece.kind == "retraction":
            reasoning, text, began_inside = f"{reasoning}{text}\n\n", "", True
        elif piece.kind == "reasoning":
            reasoning += piece.text
        else:
            text += piece.text
    reasoning = reasoning.strip()
    return SplitAnswer(text.strip() if reasoning or began_inside else text, reasoning, began_inside)


@dataclass(frozen=True, slots=True)
class _Context:
    """What the text before a marker says about it."""

    before: str  # the last character of its line that is no space
    quoted: bool  # an odd number of quotes or backticks is before it in its line
    announced: bool  # the line before ends with a colon
    in_fence: bool
    is_json: bool
    names_marker: bool  # a beginning that was content

    def allows_marker(self, after: str) -> bool:
        """Whether reasoning can begin here: at the beginning of a line, or with a sentence of its own."""
        if self.announced or self.in_fence or self.is_json or self.quoted:
            return False
        return not self.before or (self.before in _SENTENCE_STOPS and _begins_sentence(after))

    def may_be_reasoning(self, after: str) -> bool:
        """Whether all this text can be reasoning that a marker ends which is followed by `after`."""
        if self.in_fence or self.is_json or self.names_marker or self.quoted:
            return False
        if self.before and self.before in _QUOTES:
            return False
        return not self.before or self.before in _SENTENCE_ENDS or _begins_sentence(after)


def _begins_sentence(after: str) -> bool:
    """Whether an answer begins here, and not the rest of a sentence that names a marker."""
    if after[:1] == "\n" or after[:1].isalnum():
        return True
    first = after.strip()[:1]
    return bool(first) and not first.islower() and first not in _PUNCTUATION


@dataclass(slots=True)
class _GivenText:
    """Follows lines, quotes and code fences of the text that was given out, without keeping it."""

    head: str = ""  # of the current line, as far as a fence is long
    tail: str = ""  # of the current line
    ticks: int = 0  # in the current line
    quotes: int = 0
    announced: bool = False  # the last line that is not empty ends with a colon
    fence: str = ""
    is_json: bool | None = None
    names_marker: bool = False

    def add(self, text: str) -> None:
        """Add text that follows."""
        if self.is_json is None and text.strip():
            self.is_json = text.lstrip().startswith(("{", "[{", "[\n"))
        self.names_marker = self.names_marker or any(marker in text for marker in _MARKER_OF)
        *lines, rest = text.split("\n")
        for line in lines:
            self._extend(line)
            self._end_line()
        self._extend(rest)

    def context(self, text: str) -> _Context:
        """Return the context of a marker that comes after this text, which is not given out yet."""
        ahead = replace(self)
        ahead.add(text)
        before = ahead.tail.rstrip()[-1:]
        quoted = bool(ahead.ticks % 2 or ahead.quotes % 2)
        return _Context(before, quoted, ahead.announced, bool(ahead.fence), bool(ahead.is_json), ahead.names_marker)

    def _extend(self, part: str) -> None:
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
        self.head, self.tail, self.ticks, self.quotes = "", "", 0, 0


@dataclass(slots=True)
class ReasoningSplitter:
    """Splits a streamed answer; `feed` holds back what could be the beginning of a marker.

    With `held`, nothing is given out before an end marker, or the end of the answer, shows what the beginning was.
    """

    held: bool = False
    _buffer: str = ""
    _marker: _Marker | None = None
    _at_start: bool = True
    _split: bool = False  # reasoning was found
    _harmony: bool = False
    _given: _GivenText = field(default_factory=_GivenText)

    def feed(self, text: str) -> list[Piece]:
        """Return the pieces that `text` completes."""
        self._buffer += text
        return list(self._pieces(final=False))

    def finish(self) -> list[Piece]:
        """Return the rest. Reasoning that was not closed stays reasoning."""
        self.held = False
        pieces = list(self._pieces(final=True))
        self._buffer = ""
        return pieces

    def _pieces(self, *, final: bool) -> Iterable[Piece]:
        while self._buffer:
            before = (len(self._buffer), self._marker, self._at_start, self._harmony)
            if self._marker is not None:
                yield from self._inside(self._marker, final=final)
            elif self._at_start:
                yield from self._start(final=final)
            else:
                yield from self._text(final=final)
            if before == (len(self._buffer), self._marker, self._at_start, self._harmony):
                return

    def _start(self, *, final: bool) -> Iterable[Piece]:
        """Read what begins the answer, or follows reasoning: a marker, or the text itself."""
        rest = self._buffer.lstrip()
        if marker := _beginning(rest):
            self._enter(marker, rest)
        elif self._split and (end := _stray_end(rest)):
            self._buffer = rest[len(end) :]
        elif bare := _BARE_ANALYSIS.match(rest):
            self._buffer, self._split = rest[bare.end() :], True
            yield Piece("reasoning", bare.group(1))
        elif final or not _may_begin(rest):
            self._buffer = rest if self._split else self._buffer
            self._at_start = False

    def _enter(self, marker: _Marker, rest: str) -> None:
        self._buffer = rest[len(marker.begin) :]
        self._split = True
        self.held = False
        self._harmony |= marker.begin.startswith(_HARMONY)
        self._marker = None if marker.dropped else marker
        self._at_start = True

    def _inside(self, marker: _Marker, *, final: bool) -> Iterable[Piece]:
        at, end = _first_end(self._buffer, marker, final=final)
        found = bool(end)
        if not found:
            unsure = _held(self._buffer, (*marker.ends, *marker.kept_ends)) + _AHEAD
            at = len(self._buffer) if final else max(0, len(self._buffer) - unsure)  # with a quote before the marker
        if at:
            yield Piece("reasoning", self._buffer[:at])
        self._buffer = self._buffer[at + (len(end) if end in marker.ends else 0) :]
        if found:
            yield Piece("reasoning", "\n\n")
            self._marker, self._at_start = None, True

    def _text(self, *, final: bool) -> Iterable[Piece]:
        """Give out text up to a marker at the beginning of a line, a stop of Harmony, or an end without beginning."""
        seen = 0  # content before the next candidate whose context is known
        ahead = replace(self._given)
        for match in _CANDIDATES.finditer(self._buffer):
            at, found = match.start(), match.group()
            after = self._buffer[match.end() : match.end() + _AHEAD]
            if len(after) < _AHEAD and not final:
                break
            context = ahead.context(self._buffer[seen:at])
            if found in _ENDS and not self._split and context.may_be_reasoning(after):
                yield from self._retract(at, found)
                return
            if not self.held and self._harmony and found in _STOPS:
                yield from self._give(at)
                self._buffer, self._at_start = self._buffer[len(found) :], True
                return
            if not self.held and found in _MARKER_OF and context.allows_marker(after):
                yield from self._give(at)
                self._enter(_MARKER_OF[found], self._buffer)
                return
            ahead.add(self._buffer[seen : match.end()])
            seen = match.end()
        if final:
            yield from self._give(len(self._buffer))
        elif not self.held:
            yield from self._give(len(self._buffer) - self._kept())

    def _retract(self, at: int, end: str) -> Iterable[Piece]:
        """Turn the text up to an end marker into reasoning."""
        if self.held:
            yield Piece("reasoning", self._buffer[:at])
            self._buffer = self._buffer[at:]
        else:
            yield from self._give(at)
            yield Piece("retraction")
        self._buffer, self._at_start = self._buffer[len(end) :], True
        self._split, self.held = True, False

    def _kept(self) -> int:
        """Return how much of the end of the buffer may belong to a marker."""
        last = _last_candidate(self._buffer)
        unseen = len(self._buffer) - last if last >= 0 else 0
        return max(unseen, _held(self._buffer, tuple(_MARKER_OF) + _ENDS + _STOPS))

    def _give(self, count: int) -> Iterable[Piece]:
        if count > 0:
            self._given.add(self._buffer[:count])
            yield Piece("text", self._buffer[:count])
            self._buffer = self._buffer[count:]


_SIGNS: Final = (*{marker.begin for marker in _MARKERS}, *_ENDS)
_AT_START: Final = (*(marker.begin for marker in _MARKERS), *_ENDS)
# Harmony from servers that leave out the special tokens and keep the words between them.
_BARE_ANALYSIS: Final = re.compile(r"analysis(?=[A-Z])(.*?)assistantfinal", re.DOTALL)
_BARE_BEGINNING: Final = re.compile(r"analysis([A-Z]|$)|analysi?$|analy?$|ana?$|a$")
_FENCE: Final = re.compile(r"`{3,}|~{3,}")
_MARKER_OF: Final = {marker.begin: marker for marker in _MARKERS}
_CANDIDATES: Final = re.compile("|".join(map(re.escape, sorted({*_MARKER_OF, *_ENDS, *_STOPS}, key=len, reverse=True))))


def _beginning(text: str) -> _Marker | None:
    return next((marker for marker in _MARKERS if text.startswith(marker.begin)), None)


def _may_begin(text: str) -> bool:
    """Whether more text could make a marker of this."""
    return not text or bool(_BARE_BEGINNING.match(text)) or any(marker.startswith(text) for marker in _AT_START)


def _stray_end(text: str) -> str:
    """Return the end marker that the text begins with: of reasoning that was in reasoning."""
    return next((end for end in _ENDS if text.startswith(end)), "")


def _first_end(text: str, marker: _Marker, *, final: bool) -> tuple[int, str]:
    """Return where reasoning ends and by what, (-1, "") where it does not. An end in quotes is part of it."""
    ends = (*marker.ends, *marker.kept_ends)
    for match in re.finditer("|".join(map(re.escape, ends)), text):
        before, after = text[match.start() - 1 : match.start()], text[match.end() : match.end() + 1]
        if match.start() and before in _QUOTES:
            if not (after or final):
                return -1, ""
            if after and after in _QUOTES:
                continue
        return match.start(), match.group()
    return -1, ""


def _last_candidate(text: str) -> int:
    """Return where a whole marker stands at the very end of the text, else -1."""
    for match in _CANDIDATES.finditer(text):
        if match.end() + _AHEAD > len(text):
            return match.start()
    return -1


def _held(text: str, markers: Sequence[str]) -> int:
    """Return the length of the longest end of `text` that is the beginning of a marker."""
    longest = max(map(len, markers))
    for length in range(min(longest, len(text)), 0, -1):
        end = text[-length:]
        if any(marker.startswith(end) for marker in markers):
            return length
    return 0
