"""The check of an answer without a model: numbers, paths and quoted texts in it that none of its sources has."""

import re
from collections.abc import Sequence
from functools import cached_property
from html import unescape
from typing import Final
from unicodedata import normalize
from urllib.parse import unquote

from brain.lifecycle.answer_passages import CITATION, Passage, passages, unit_at
from brain.lifecycle.stated_numbers import NUMBER, TABLE, Numbers, Placed, readings, rows_of

MOST_CHARS: Final = 500_000
"""Of sources; nothing is marked in an answer from longer ones."""

_MOST_PASSAGES: Final = 200  # of an answer are checked, the first ones
_MOST_IN_PATH: Final = 500  # characters; in longer ones no folder is looked for
_POSITION: Final = re.compile(r"(?i)(?::\d+(?:[-–:]\d+)*|#L\d+(?:-L?\d+)?)$")
_OMITTED: Final = re.compile(r"\[?(?:…|\.{3})\]?|\[[^\]]*\]")
_TAG: Final = re.compile(r"</?[A-Za-z][^<>]*>")
_ESCAPE: Final = re.compile(r"\\u([0-9a-fA-F]{4})|\\[nrt]")
_SHARED: Final = re.compile(rf"(?:(?:\s?[–—/-]\s?|,? (?:[^\W\d_]{{1,4}} )?)(?:{NUMBER.pattern})){{1,3}}")
_WORD: Final = re.compile(r"\w+")


def unsupported(answer: str, sources: Sequence[str], said: Sequence[str]) -> Sequence[Passage]:
    """Return the numbers, paths and quoted texts of an answer that are in no source and were not said, in order.

    `sources` are the whole results that the answer was made of, `said` the request and what else the user said.
    Dates, times, durations, short counts and blocks of code are exempt, and so is a number that others of the answer
    or of a row or column of a source add up to, or that stands there in another unit or format, or with more digits.
    """
    found = [one for one in passages(answer) if one.kind != "count"][:_MOST_PASSAGES]
    if not found or sum(map(len, (*sources, *said))) > MOST_CHARS:
        return ()
    check = _Check(answer, sources, said)
    return [one for one in found if not check.supports(one)]


def _words(text: str) -> str:
    """Return the words of a text in one form, each between spaces."""
    plain = _ESCAPE.sub(lambda match: chr(int(match[1], 16)) if match[1] else " ", text) if "\\" in text else text
    plain = unescape(normalize("NFKC", plain)).casefold()
    return f" {' '.join(_WORD.findall(plain.replace('_', ' ')))} "


class _Check:
    """Decides on the passages of one answer; each form of the sources is made when it is first needed."""

    def __init__(self, answer: str, sources: Sequence[str], said: Sequence[str]) -> None:
        self.answer = answer
        self.sources = (*sources, *said)
        self.said = said

    @cached_property
    def _raw(self) -> str:
        return "\n".join(self.sources).replace("\\/", "/").replace("\\\\", "\\").casefold()

    @cached_property
    def _words(self) -> str:
        text = "\n".join(self.sources)
        return _words(text) + _words(_TAG.sub(" ", text))

    @cached_property
    def _numbers(self) -> Numbers:
        return Numbers(self.sources, self.said)

    def supports(self, passage: Passage) -> bool:
        """Whether a passage is in a source, or can be made of what is."""
        text = passage.text
        if passage.kind == "quote":
            parts = [_words(part) for part in _OMITTED.split(text[1:-1])]
            return _words(text[1:-1]) in self._words or all(part in self._words for part in parts if part.strip())
        if self._has_text(re.sub(r"^(?:#|v(?=\d))", "", text.casefold())):
            return True
        if passage.kind == "path":
            return self._has_path(unquote(text).casefold())
        return self._has_number(text, passage.start) if NUMBER.fullmatch(text) else self._has_id(text)

    def _has_text(self, text: str) -> bool:
        """Whether a text stands in a source, between characters that do not go on with it."""
        is_end = text.isdigit() and len(text) > 3  # maybe of a longer one: of a card, an account
        begin = r"(?:(?<!\d)|(?<=\d{4}))" if is_end else r"(?<!\d)"
        edges = (begin, r"(?!\d)") if NUMBER.fullmatch(text) else (r"(?a:(?<![^\Wv]))", r"(?a:(?!\w))")
        return text in self._raw and bool(re.search(re.escape(text).join(edges), self._raw))

    def _has_path(self, text: str) -> bool:
        """Whether a source has a path: with its line or without, or as a name in a folder that is named elsewhere."""
        if "://" not in text and (position := _POSITION.search(text)):
            lines, text = NUMBER.findall(position[0]), text[: position.start()]
            if not all(map(self._has_text, lines)):
                return False
        text = re.sub(r"^[a-z0-9]+://(?:www\.)?|^[~.]{0,2}/|^www\.", "", text).rstrip("/")
        if not text or self._has_text(text):
            return True
        return len(text) < _MOST_IN_PATH and any(
            re.search(rf"(?<!\w){re.escape(text[: cut.start()])}[/\\]?(?![\w/\\.-])", self._raw)
            and re.search(rf"(?<![\w/\\.-]){re.escape(text[cut.end() :])}(?!\w)", self._raw)
            for cut in re.finditer(r"[/\\]", text)
        )

    def _has_id(self, text: str) -> bool:
        """Whether a source has a name with digits: as it is, as the beginning of a hash, or written apart."""
        words = _words(text)
        plain = words.replace(" ", "")
        return words in self._words or (len(plain) > 3 and plain in self._words.replace(" ", ""))

    @cached_property
    def _own_rows(self) -> Sequence[Sequence[Placed]]:
        return rows_of(CITATION.sub(lambda match: " " * len(match[0]), self.answer))

    def _has_number(self, token: str, start: int) -> bool:
        unit = unit_at(self.answer, token, start)
        names = {unit, "%"} if unit == TABLE else {unit}
        if shared := _SHARED.match(self.answer, start + len(token)):
            names.add(unit_at(self.answer, "", shared.end()))  # that of the last number of several
        if self._has_text(token.replace(".", ":")):  # a time
            return True
        return any(
            self._numbers.have(one, name) or self._numbers.make(one, name, start, self._own_rows)
            for one in readings(token)
            for name in names
        )
