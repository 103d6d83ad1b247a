"""The check of an answer without a model: numbers, paths and quoted texts in it that none of its sources has."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from html import unescape
from itertools import combinations
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
from brain.lifecycle.stated_numbers import (
    NUMBER,
    Numbers,
    Value,
    Values,
    is_measure,
    is_scale,
    listed,
    readings,
    seconds_of,
)

MOST_CHARS: Final = 500_000
"""Of sources; nothing is marked in an answer from longer ones."""

_MOST_PASSAGES: Final = 200  # of an answer; nothing is marked where it has more


def unsupported(answer: str, sources: Sequence[str], said: Sequence[str]) -> Sequence[Passage]:
    """Return the numbers, paths and quoted texts of an answer that are in no source and were not said, in order.

    `sources` are the whole results that the answer was made of, `said` the request and what else the user said.
    Dates, list numbers, citation marks and blocks of code are exempt, and so is what the sources add up to: sums,
    counts, means, differences and shares, values in another unit or format, or with fewer digits.
    """
    found = passages(answer)
    if not found or len(found) > _MOST_PASSAGES or sum(map(len, (*sources, *said))) > MOST_CHARS:
        return ()
    check = _Check(answer, _Sources((*sources, *said)), _numbers_in(said))
    return [one for one in found if not check.supports(one)]


_POSITION: Final = re.compile(r"(?i)(?::(\d+)(?:[-–:]\d+)*|#L(\d+)(?:-L?\d+)?)$")
_HOURS, _LEAST_SCALED = 24, 100  # a number of fewer digits is a product or quotient of some two numbers
_SENTENCE_END: Final = re.compile(r"\n|。|[.!?]\s+(?=[^\W\d_a-zß-ÿ\u0430-\u044f]|[*_“„\"])")
_PARTS: Final = re.compile(r"(?s).{1,20000}(?!\w)|.{20000}|.+")  # a thread searches one at a time
_ZONE: Final = re.compile(r"\b(?:utc|gmt|time ?zone|[a-z]+/[a-z]+_?[a-z]+)|\d(?:z\b|[+-]\d\d:?\d\d\b)")
_MOMENT: Final = re.compile(r"(?<!\d)(\d{4})-(\d\d)-(\d\d)(?:[t ](\d\d):(\d\d)(?::(\d\d))?)?")
_MOST_MOMENTS, _MOST_TIMES, _MOST_ASKED, _MOST_STATED = 50, 12, 8, 500
_RUN: Final = re.compile(r"(?<!\w)(?=(?:\W?\d){6})[A-Z\d]{1,6}(?:[ -][A-Z\d]{1,6})+(?!\w)")  # of a number in groups
_POINTED_TIME: Final = re.compile(r"\d{1,2}\.[0-5]\d")
_LIMIT: Final = re.compile(
    r"(?i)(?:[><≥≤]|\b(?:above|over|below|under|than|least|most|über|unter|als|plus de|moins de|más de|menos de|oltre"
    r"|более))\s*$"
)
_CURRENCY: Final = re.compile(r"[€$£¥]\s?$")
_ABOUT: Final = re.compile(
    r"(?i)(?:[~≈±]|\b(?:about|around|approx\w*|roughly|nearly|almost|some|up to|rund|etwa|knapp|fast|circa|ca\.?"
    r"|environ|près de|unos|cerca de|casi|quase|около|約|约))\s*$"
)
_NAMES: Final = re.compile(
    r"(?i)(?:utf-?(?:8|16|32)|sha-?(?:1|256|512)|md5|ipv[46]|base64|x(?:64|86)|arm64|amd64|http/?[123]|h26[45]|mp[34]"
    r"|[sr][23]|ec2|k8s|i18n|oauth2|p\d\d|q[1-4]|[ah][1-6]|co2|h2o|\w*[23]d|\d+[x×]|\d+-?(?:fold|fach)|iso-?8601)"
)
_WORD: Final = re.compile(r"\w+")
_ESCAPE: Final = re.compile(r"\\u([0-9a-fA-F]{4})|\\[nrt]")
_HARDLY_A_QUOTE: Final = frozenset(("yes", "no", "true", "false", "null", "none", "ok", "unknown", "n a"))
_COUNT_WORDS: Final = (
    "zero null zéro cero", "one eins ein eine un une uno una", "two zwei deux dos due", "three drei trois tres tre",
    "four vier quatre cuatro quattro", "five fünf cinq cinco cinque", "six sechs seis sei", "seven sieben sept siete",
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
        return Numbers(["".join(DATE.sub(_year_in, part) for part in _PARTS.findall(text)) for text in self.texts])

    @cached_property
    def times(self) -> Sequence[tuple[int, int, int]]:
        """The hours, minutes and seconds of all times, each once."""
        found = re.findall(r"(?<!\d)(\d{1,2})[:h](\d\d)(?::(\d\d))?", self.raw)
        return list(dict.fromkeys((int(hour), int(minute), int(second or 0)) for hour, minute, second in found))

    @cached_property
    def spans(self) -> Values:
        """The seconds between the dates and times of the sources."""
        found = _MOMENT.findall(self.raw)[:_MOST_MOMENTS]
        moments = [_seconds_at(*moment) for moment in found]
        times = [(hour * 60 + minute) * 60 + second for hour, minute, second in self.times[:_MOST_TIMES]]
        between = [*(abs(a - b) for a, b in combinations(moments, 2)), *(abs(a - b) for a, b in combinations(times, 2))]
        return Values(Value(one, 0) for one in between)

    @cached_property
    def has_timestamps(self) -> bool:
        return bool(re.search(r"(?<!\d)1\d{9}(?:\d{3})?(?!\d)", self.raw))

    def has_text(self, text: str) -> bool:
        """Whether a text stands in a source, between characters that do not go on with it."""
        return bool(re.search(rf"(?<![\w]){re.escape(text)}(?![\w])", self.raw)) if text in self.raw else False


def _seconds_at(year: str, month: str, day: str, hour: str, minute: str, second: str) -> float:
    days = date(int(year) or 1, min(int(month) or 1, 12), 1).toordinal() + int(day)
    return days * 86_400 + int(hour or 0) * 3600 + int(minute or 0) * 60 + int(second or 0)


def _year_in(date: re.Match[str]) -> str:
    """Return the year of a date, which says no other number."""
    year = re.search(r"(?<!\d)(?:19|20)\d\d(?!\d)", date[0])
    return f" {year[0]} " if year else " "


def _numbers_in(texts: Sequence[str]) -> list[float]:
    """Return the numbers in texts, each in its first reading, without 0."""
    tokens = (token for text in texts for token in NUMBER.findall(text))
    return [one.number for token in tokens for one in readings(token)[:1] if one.number]


def _unit_after(text: str, end: int) -> str:
    found = UNIT.match(text, end)
    return (found and found[1]) or ""


@dataclass(frozen=True)
class _Check:
    """Decides on the passages of one answer."""

    answer: str
    sources: _Sources
    asked: Sequence[float]

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
            if sources.spans.between(seconds - step / 2, seconds + step):
                return True
            near = (
                values.between((seconds - step / 2) / unit, (seconds + step) / unit) for unit in (1, 0.001, 60, 3600)
            )
            in_row = r"\D{1,12}".join(rf"(?<!\d){re.escape(number)}" for number, _ in parts)
            return any(near) or bool(re.search(in_row, sources.raw))
        if with_unit := WITH_UNIT.fullmatch(text):
            return self._has_value(with_unit[1], with_unit[2], passage) or sources.has_text(text.casefold())
        number = NUMBER.match(text)
        if not number or not UNIT.fullmatch(text, number.end()) or not (readings(number[0]) or listed(number[0])):
            return self._has_id(text)
        unit = _unit_after(self.answer, passage.start + number.end())
        currency = _CURRENCY.search(self.answer, max(0, passage.start - 3), passage.start)
        unit = currency[0][0] if currency and not is_scale(unit) else unit
        return self._has_value(number[0], unit, passage)

    def _has_id(self, text: str) -> bool:
        low, sources = text.casefold().lstrip("#"), self.sources
        if _NAMES.fullmatch(low) or sources.has_text(low):
            return True
        words = _words(low)
        if words in sources.words or (len(low) > 3 and words.replace(" ", "") in sources.joined):
            return True
        plain = low[low.startswith("v") :]
        return plain != low and (sources.has_text(plain) or any(map(sources.numbers.stated.has, readings(plain))))

    def _has_time(self, time: re.Match[str]) -> bool:
        """Whether a source has the time, in whatever zone: that moves it by hours or half hours."""
        if self.sources.has_timestamps or int(time[1]) > _HOURS:
            return int(time[1]) <= _HOURS
        if re.search(rf"(?<!\d)0?{re.escape(time[0].casefold())}(?!\d)", self.sources.raw):
            return True
        hour, minute = int(time[1]), int(time[2] or 0)
        if self.sources.spans.equals(hour * 3600 + minute * 60):  # a duration
            return True
        any_hour = _ZONE.search(self.sources.raw) or _ZONE.search(self.answer.casefold())
        return any(
            (minutes + shift - minute) % (30 if any_hour else 60) == 0 and (any_hour or (hours - hour) % 12 == 0)
            for hours, minutes, seconds in self.sources.times
            for shift in range(1 + (seconds >= 30))
        )

    def _has_value(self, token: str, unit: str, passage: Passage) -> bool:
        """Whether a source has a number, or what it can be made of."""
        values, before = readings(token), self.answer[max(0, passage.start - 20) : passage.start]
        limit = _LIMIT.search(before)
        if limit and len(token.strip("0")) == 1 and len(token) > 1:  # a round one, to compare others with
            return True
        about = bool(limit or _ABOUT.search(before))
        if self._is_stated(token, passage) or any(
            self.sources.numbers.stated.has(one, unit, about=about) for one in values
        ):
            return True
        counts = [] if is_measure(unit) else [int(one.number) for one in values if not one.places]
        if any(self._is_count(one, passage) for one in counts):
            return True
        return any(self._is_made(one, unit, passage, about=about) for one in values)

    def _is_stated(self, token: str, passage: Passage) -> bool:
        """Whether a source has a number as it is written, or as a part of a longer one, a list or a time."""
        sources, parts = self.sources, listed(token)
        if len(token) > 3 and sources.has_text(token.casefold()):
            return True
        run = next((one for one in _RUN.finditer(self.answer) if one.start() <= passage.start < one.end()), None)
        if run and _words(run[0]).replace(" ", "") in sources.joined:
            return True
        if _POINTED_TIME.fullmatch(token) and tuple(map(int, token.split("."))) in {time[:2] for time in sources.times}:
            return True
        return bool(parts) and all(sources.numbers.stated.equals(one.number) for one in parts)

    def _is_made(self, value: Value, unit: str, passage: Passage, *, about: bool) -> bool:
        """Whether a number can be made of others, of the sources or of the answer."""
        numbers, own, seconds = self.sources.numbers, self._own(passage), seconds_of(unit)
        if seconds and self.sources.spans.has(Value(value.number * seconds, 0)):
            return True
        is_share = unit[:1] == "%" or unit.lower().startswith(("perc", "proz", "pour", "por"))
        made = [own.derived, numbers.derived, *((own.shares, numbers.shares) if is_share else ())]
        if any(values.has(value, unit, about=about, least=9) for values in made):
            return True
        if value.number * 10**value.places < _LEAST_SCALED:
            return False
        return self._own(passage, in_line=True).scaled.has(value) or self._of_asked.has(value)

    @cached_property
    def _of_asked(self) -> Values:
        """What the first numbers that the user said make of those of the sources, by multiplication and division."""
        stated = [one.number for one in self.sources.numbers.stated.sorted if one.number]
        pairs = ((one, other) for one in self.asked[:_MOST_ASKED] for other in stated[:_MOST_STATED])
        return Values(Value(one, 12) for a, b in pairs for one in (a * b, b / a))

    def _is_count(self, count: int, passage: Passage) -> bool:
        """Whether so many things may have been counted, or a source has the number in words."""
        sentence = self._sentence(passage)
        if count < 3 or (TIME.search(sentence) and count in {hour % 12 for hour, _, _ in self.sources.times}):
            return True
        if count in self.sources.numbers.sizes or count in self._listed:
            return True
        if count < len(_COUNT_WORDS) and not self.sources.known.isdisjoint(_COUNT_WORDS[count].split()):
            return True
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

    @cached_property
    def _listed(self) -> set[int]:
        """How many items the answer lists."""
        lines = [line.strip() for line in self.answer.splitlines()]
        items = sum(bool(re.match(r"[-*•+]\s|\d+[.)]\s", line)) for line in lines)
        rows = sum(line.startswith("|") for line in lines)
        return {items, rows, rows - 2, *(line.count(",") + shift for line in lines for shift in (1, 2))}

    def _sentence(self, passage: Passage) -> str:
        start = max((one.end() for one in _SENTENCE_END.finditer(self.answer, 0, passage.start)), default=0)
        end = _SENTENCE_END.search(self.answer, passage.end)
        return self.answer[start : end.start() if end else None]

    def _own(self, passage: Passage, *, in_line: bool = False) -> Numbers:
        """Return the known numbers of the rest of the answer, with those of the passage's sentence or whole line."""
        start, end = self.answer.rfind("\n", 0, passage.start) + 1, self.answer.find("\n", passage.end)
        near = self.answer[start : end if end >= 0 else None] if in_line else self._sentence(passage)
        others = f"{self.answer[: passage.start]} {self.answer[passage.end :]}"
        near, rest = (NUMBER.sub(self._if_known, text) for text in (near.replace(passage.text, " ", 1), others))
        return Numbers([rest], in_line=near)

    def _if_known(self, match: re.Match[str]) -> str:
        """Return a number of the answer, a space if it is neither stated nor a total nor a count."""
        numbers, unit = self.sources.numbers, _unit_after(match.string, match.end())
        if (key := f"{match[0]} {unit}") not in self._known:
            counts, groups = {1, 2, *numbers.sizes, *self._listed}, (numbers.stated, numbers.derived)
            values = readings(match[0])
            found = any(one.number in counts or any(group.has(one, unit) for group in groups) for one in values)
            self._known[key] = match[0] if found else " "
        return self._known[key]

    @cached_property
    def _known(self) -> dict[str, str]:
        return {}
