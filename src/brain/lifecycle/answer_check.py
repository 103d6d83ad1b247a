"""The check of an answer without a model: numbers, paths and quoted texts in it that none of its sources has."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from html import unescape
from typing import Final
from unicodedata import normalize
from urllib.parse import unquote

from brain.lifecycle.answer_passages import (
    DATE,
    DURATION_PART,
    PATH,
    TIME,
    UNIT,
    URL,
    WITH_UNIT,
    Passage,
    duration_of,
    passages,
)
from brain.lifecycle.stated_numbers import NUMBER, Numbers, is_measure, listed, readings, seconds_of

MOST_CHARS: Final = 1_000_000
"""Of sources; nothing is marked in an answer from longer ones."""


def unsupported(answer: str, sources: Sequence[str], said: Sequence[str]) -> Sequence[Passage]:
    """Return the numbers, paths and quoted texts of an answer that are in no source and were not said, in order.

    `sources` are the whole results that the answer was made of, `said` the request and what else the user said.
    Dates, list numbers, citation marks and blocks of code are exempt, and so is what the sources add up to: sums,
    counts, means, differences and shares, values in another unit or format, or with fewer digits.
    """
    found = passages(answer)
    if not found or sum(map(len, (*sources, *said))) > MOST_CHARS:
        return ()
    check = _Check(answer, _Sources((*sources, *said)), found)
    return [one for one in found if not check.supports(one)]


_POSITION: Final = re.compile(r"(?i)(?::(\d+)(?:[-–:]\d+)*|#L(\d+)(?:-L?\d+)?)$")
_HOURS: Final = 24
_CURRENCY: Final = re.compile(r"[€$£¥]\s?$")
_ABOUT: Final = re.compile(
    r"(?i)(?:[~≈><≥≤±]|\b(?:about|around|approx\w*|roughly|nearly|almost|over|under|than|least|most|some|up to|rund|etwa|knapp"
    r"|fast|circa|ca\.?|über|als|environ|près de|plus de|moins de|unos|cerca de|más de|casi|quase|oltre|около|более|約|约))\s*$"
)
_NAMES: Final = re.compile(
    r"(?i)(?:utf-?(?:8|16|32)|sha-?(?:1|256|512)|md5|ipv[46]|base64|x(?:64|86)|arm64|amd64|http/?[123]|h26[45]|mp[34]|[sr][23]|ec2"
    r"|k8s|i18n|oauth2|p\d\d|q[1-4]|[ah][1-6]|co2|h2o|\w+[23]d|[23]d|\d+[x×]|\d+-?fold|\d+-?fach|iso-?8601)"
)
_WORD: Final = re.compile(r"\w+")
_ESCAPE: Final = re.compile(r"\\u([0-9a-fA-F]{4})|\\[nrt]")
_HARDLY_A_QUOTE: Final = frozenset(("yes", "no", "true", "false", "null", "none", "ok", "unknown", "n a"))
_COUNT_WORDS: Final = (
    "zero null zéro cero", "one eins ein eine un une uno una", "two zwei deux dos due", "three drei trois tres tre",
    "four vier quatre cuatro quattro", "five fünf cinq cinco cinque", "six sechs seis sei", "seven sieben sept siete sette",
    "eight acht huit ocho otto", "nine neun neuf nueve nove", "ten zehn dix diez dieci", "eleven elf onze once undici",
    "twelve zwölf douze doce dodici dozen dutzend",
)  # fmt: skip


def _words(text: str) -> str:
    """Return the words of a text in one form, each between spaces."""
    plain = _ESCAPE.sub(lambda match: chr(int(match[1], 16)) if match[1] else " ", text) if "\\" in text else text
    plain = unescape(normalize("NFKC", plain)).casefold()
    return f" {' '.join(_WORD.findall(plain.replace('_', ' ')))} "


class _Sources:
    """What an answer may rest on, each form of it made when it is first needed."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts

    @cached_property
    def raw(self) -> str:
        return "\n".join(self.texts).replace("\\/", "/").replace("\\\\", "\\").casefold()

    @cached_property
    def words(self) -> str:
        return _words("\n".join(self.texts))

    @cached_property
    def known(self) -> frozenset[str]:
        return frozenset(self.words.split())

    @cached_property
    def joined(self) -> str:
        return self.words.replace(" ", "")

    @cached_property
    def numbers(self) -> Numbers:
        return Numbers([DATE.sub(_year_in, text) for text in self.texts])

    @cached_property
    def times(self) -> set[tuple[int, int]]:
        """The minutes and seconds of all times."""
        found = re.findall(r"(?<!\d)\d{1,2}[:h](\d\d)(?::(\d\d))?", self.raw)
        return {(int(minutes), int(seconds or 0)) for minutes, seconds in found}

    @cached_property
    def has_timestamps(self) -> bool:
        return bool(re.search(r"(?<!\d)1\d{9}(?:\d{3})?(?!\d)", self.raw))

    def has_text(self, text: str) -> bool:
        """Whether a text stands in a source, between characters that do not go on with it."""
        return bool(re.search(rf"(?<![\w]){re.escape(text)}(?![\w])", self.raw)) if text in self.raw else False


def _year_in(date: re.Match[str]) -> str:
    """Return the year of a date, which says no other number."""
    year = re.search(r"(?<!\d)(?:19|20)\d\d(?!\d)", date[0])
    return f" {year[0]} " if year else " "


@dataclass(frozen=True, slots=True)
class _Check:
    """Decides on the passages of one answer."""

    answer: str
    sources: _Sources
    found: Sequence[Passage]

    def supports(self, passage: Passage) -> bool:
        """Whether a passage is in a source, or can be made of what is."""
        match passage.kind:
            case "path":
                return self._has_path(passage.text)
            case "quote":
                return self._has_quote(passage.text)
            case "number":
                return self._has_number(passage)

    def _has_path(self, text: str) -> bool:
        sources, low = self.sources, unquote(text).casefold()
        if (position := _POSITION.search(low)) and "://" not in low:
            low, lines = low[: position.start()], NUMBER.findall(position[0])
            if not all(sources.numbers.stated.has(one) for line in lines for one in readings(line)):
                return False
        plain = re.sub(r"^[a-z0-9]+://(?:www\.)?|^www\.", "", low).rstrip("/")
        if any(sources.has_text(one.strip("/")) for one in (low, plain, text.casefold()) if one.strip("/")):
            return True
        parts = [part for part in re.split(r"[/\\]+", plain) if part not in ("", ".", "..", "~")]
        heads = ("/".join(parts[:at]) for at in range(len(parts) - 1, 0, -1))
        if "://" in low or not parts:
            return not parts
        return all(map(sources.has_text, parts)) and (len(parts) == 1 or any(map(sources.has_text, heads)))

    def _has_quote(self, text: str) -> bool:
        is_code = text.startswith("`")
        inner = text.strip("`").strip() if is_code else text[1:-1].strip()
        whole = _words(inner)
        words = whole.split()
        if not words or whole.strip() in _HARDLY_A_QUOTE or whole in self.sources.words:
            return True
        if URL.fullmatch(inner) or PATH.fullmatch(inner):
            return self._has_path(inner)
        if len(parts := re.split(r"\[?(?:…|\.{3})\]?|\[[^\]]*\]", inner)) > 1:
            return all(_words(part) in self.sources.words for part in parts if _words(part).strip())
        if len(words) > 3 and not is_code:
            return False
        return all(map(self._has_word, words))

    def _has_word(self, word: str) -> bool:
        if word in self.sources.known:
            return True
        if word.isdigit():
            return any(self.sources.numbers.stated.has(one) for one in readings(word))
        stem = word[: max(4, len(word) - 3)]
        return len(word) > 4 and f" {stem}" in self.sources.words

    def _has_number(self, passage: Passage) -> bool:
        text, sources = passage.text, self.sources
        if time := TIME.fullmatch(text):
            return self._has_time(time) or sources.has_text(text.casefold())
        if seconds := duration_of(text):
            parts = DURATION_PART.findall(text)
            step, values = seconds_of(parts[-1][1]), sources.numbers.stated
            near = (
                values.between((seconds - step / 2) / unit, (seconds + step) / unit) for unit in (1, 0.001, 60, 3600)
            )
            return any(near) or all(values.equals(one.number) for number, _ in parts for one in readings(number))
        with_unit = WITH_UNIT.fullmatch(text)
        if with_unit:
            return self._has_value(with_unit[1], with_unit[2], passage) or sources.has_text(text.casefold())
        if any(map(str.isalpha, text)) or re.fullmatch(r"\d+(?:\.\d+){2,}(?:/\d+)?", text):
            return self._has_id(text)
        number = NUMBER.match(text)
        unit = UNIT.match(self.answer, passage.start + number.end()) if number else None
        currency = _CURRENCY.search(self.answer, max(0, passage.start - 3), passage.start)
        return bool(
            number
            and self._has_value(number[0], (currency[0][0] if currency else "") or (unit and unit[1]) or "", passage)
        )

    def _has_id(self, text: str) -> bool:
        low, sources = text.casefold().lstrip("#"), self.sources
        if _NAMES.fullmatch(low) or sources.has_text(low):
            return True
        words = _words(low)
        if words in sources.words or (len(low) > 3 and words.replace(" ", "") in sources.joined):
            return True
        return low.startswith("v") and any(sources.numbers.stated.has(one) for one in readings(low[1:]))

    def _has_time(self, time: re.Match[str]) -> bool:
        """Whether a source has the time, in whatever zone: that moves it by hours or half hours."""
        if self.sources.has_timestamps or int(time[1]) > _HOURS:
            return int(time[1]) <= _HOURS
        minute = int(time[2] or 0)
        return any(
            (minutes + shift - minute) % 60 == 0
            for minutes, seconds in self.sources.times
            for shift in (0, 30, *((1,) * (seconds >= 30)))
        )

    def _has_value(self, token: str, unit: str, passage: Passage) -> bool:
        """Whether a source has a number, or what it can be made of."""
        sources, values = self.sources, readings(token)
        if len(token) > 3 and sources.has_text(token.casefold()):
            return True
        about = bool(_ABOUT.search(self.answer, max(0, passage.start - 20), passage.start))
        parts = listed(token)
        if any(sources.numbers.stated.has(one, unit, least=1 if about else 2) for one in values):
            return True
        if parts and all(sources.numbers.stated.equals(one.number) for one in parts):
            return True
        counts = not is_measure(unit) and [int(one.number) for one in values if not one.places]
        if counts and any(self._is_count(one, passage) for one in counts):
            return True
        own, percent = self._own(passage), unit[:1] == "%" or unit.lower().startswith(("perc", "proz", "pour", "por"))
        made = [own.derived, sources.numbers.derived, *((own.shares, sources.numbers.shares) if percent else ())]
        return any(group.has(one, unit, least=1 if about else 9) for one in values for group in made)

    def _is_count(self, count: int, passage: Passage) -> bool:
        """Whether so many things may have been counted, or a source has the number in words."""
        if count < 3 or count in self.sources.numbers.sizes or count in self._listed:
            return True
        if count < len(_COUNT_WORDS) and not self.sources.known.isdisjoint(_COUNT_WORDS[count].split()):
            return True
        sentence = self._sentence(passage)
        words = {
            word[: max(4, len(word) - 2)]
            for word in _words(sentence).split()
            if len(word) > 3 and not word[0].isdigit()
        }
        frequencies = {self.sources.words.count(f" {word}") for word in words}
        sizes = self.sources.numbers.sizes if count < 1000 else ()
        if count in frequencies or any(size - count in frequencies for size in sizes if size > count):
            return True
        limits = [
            one.number for token in NUMBER.findall(sentence) for one in readings(token)[:1] if one.number != count
        ]
        return count in self.sources.numbers.beyond(limits)

    @property
    def _listed(self) -> set[int]:
        """How many items the answer lists."""
        lines = [line.strip() for line in self.answer.splitlines()]
        items = sum(bool(re.match(r"[-*•+]\s|\d+[.)]\s", line)) for line in lines)
        rows = sum(line.startswith("|") for line in lines)
        return {items, rows, rows - 2, *(line.count(",") + shift for line in lines for shift in (1, 2))}

    def _sentence(self, passage: Passage) -> str:
        start = max(self.answer.rfind(mark, 0, passage.start) + 1 for mark in ("\n", ". ", "! ", "? ", "。"))
        ends = [at for mark in ("\n", ". ", "! ", "? ", "。") if (at := self.answer.find(mark, passage.end)) >= 0]
        return self.answer[start : min(ends, default=len(self.answer))]

    def _own(self, passage: Passage) -> Numbers:
        """Return the stated numbers of the rest of the answer, those of the passage's sentence in a line of their own."""
        known, sentence = (self.sources.numbers.stated, self.sources.numbers.derived), self._sentence(passage)
        others = f"{self.answer[: passage.start]} {self.answer[passage.end :]}"
        near = sentence.replace(passage.text, " ", 1)

        def kept(match: re.Match[str]) -> str:
            return match[0] if any(values.has(one) for one in readings(match[0]) for values in known) else " "

        return Numbers([NUMBER.sub(kept, others)], in_line=NUMBER.sub(kept, near))
