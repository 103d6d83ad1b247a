"""Numbers in texts: the values of what people write, and those that rounding, units, sums and counts make of others."""

import json
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, combinations, pairwise
from types import MappingProxyType
from typing import Any, Final, NamedTuple, cast

_SPACES: Final = " \u00a0\u2009\u202f"
NUMBER: Final = re.compile(rf"\d+(?:[.,'’_٫٬]\d+|[{_SPACES}]\d{{3}}(?!\d))*(?:[eE][+-]?\d+(?!\w))?")  # noqa: RUF001
_SEPARATOR: Final = re.compile(rf"[.,'’_٫٬{_SPACES}]")  # noqa: RUF001 - as Switzerland and Arabic write them
_DECIMAL_MARKS: Final = ".,\u066b"
_GROUP: Final = 3  # digits, the last one also in India
_MOST_PRICED: Final = 20
_SMALL, _LARGE = 5, 100  # a group of which any two may be added; numbers of which any two may be compared
_PERCENT: Final = re.compile(r"(\d+(?:[.,]\d+)?)\s?%")

# What is no quantity in a result: ids, hashes, versions and addresses. Their digits support no number of an answer.
_NO_QUANTITY: Final = re.compile(
    r"(?i)\b(?=[0-9a-f-]*\d)(?=[0-9a-f-]*[a-f])[0-9a-f]{4,}(?:-[0-9a-f]{4,})+\b"
    r"|\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{8,}\b|\b\d+(?:\.\d+){3,}\b"
    r"|(?<=[-_])(?=[a-z]*\d)(?=\d*[a-z])[0-9a-z]{4,}(?!\w)"
)
_VERSION: Final = re.compile(r"(?<![\d.])((\d+)\.\d+)(?:\.\d+)+(?!\d)")  # also known by its beginnings
_LABEL: Final = re.compile(r"([^\W\d_][\w-]*)\W{0,6}$")
_FOLLOWING: Final = re.compile(r"\W{0,3}([^\W\d_]\w*)")
_LABEL_CHARS: Final = 40


class Value(NamedTuple):
    """A number, and how many decimal places it was written with."""

    number: float
    places: int


def readings(token: str) -> list[Value]:
    """Return what a token of `NUMBER` may mean: `1.234` is 1.234 or 1234; nothing if it is a list or a version."""
    if "e" in token.lower():
        return (
            [Value(float(token.replace(",", ".")), 0)] if not _SEPARATOR.search(token[:-1].replace(".", "", 1)) else []
        )
    parts, marks = _SEPARATOR.split(token), _SEPARATOR.findall(token)
    if not marks:
        return [Value(float(token), 0)]
    found = list[Value]()
    if len(set(marks)) == 1 and _is_grouped(parts):
        found.append(Value(float("".join(parts)), 0))
    whole = parts[:-1]
    is_last = len(marks) == 1 or (len(set(marks[:-1])) == 1 and marks[-1] != marks[0])
    if marks[-1] in _DECIMAL_MARKS and is_last and (len(whole) == 1 or _is_grouped(whole)):
        found.append(Value(float(f"{''.join(whole)}.{parts[-1]}"), len(parts[-1])))
    return found


def _is_grouped(parts: Sequence[str]) -> bool:
    middle = all(len(part) in (_GROUP - 1, _GROUP) for part in parts[1:-1])
    return len(parts[0]) <= _GROUP and parts[0] != "0" and middle and (len(parts) == 1 or len(parts[-1]) == _GROUP)


def listed(token: str) -> list[Value]:
    """Return the numbers of a token that may be a list: `1,200` also has 1 and 200."""
    pieces = re.split(rf"[,{_SPACES}]", token)
    return [value for piece in pieces for value in readings(piece)] if len(pieces) > 1 else []


_BYTES: Final = re.compile(r"(?i:[kmgtp]i?(?:b|bytes?|bits?)(?:ps)?|bytes?|octets?|gi|mi|ki)|[KMGTP]o")
_SECONDS: Final[Mapping[str, float]] = MappingProxyType(
    {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
)
_TIME_WORDS: Final = (
    ("milli|миллисек|毫秒", 0.001),
    ("sec|sek|seg|сек|秒|초", 1),
    ("min|мин|分|분", 60),
    ("hour|hr|stund|std|heure|hora|ore|ora|uur|час|小时|時間|시간", 3600),
    ("day|tag|jour|día|dia|giorn|dag|дн|ден|天|日", 86_400),
    ("week|woche|semain|seman|settiman|нед|週|周", 604_800),
)
_TIMES: Final = [(re.compile(f"(?:{words})", re.IGNORECASE), seconds) for words, seconds in _TIME_WORDS]
_SCALES: Final = (
    (re.compile(r"(?:k|K|thousand|tsd|tausend|mil|mille|тыс|千)"), 1e3),
    (re.compile(r"(?i)(?:m|mln|mio|mil+i[oó]n\w*|милл\w*|百万)"), 1e6),
    (re.compile(r"(?i)(?:bn?|billions?|mrd|mil+iard\w*|млрд)"), 1e9),
    (re.compile("[万萬만]"), 1e4),
    (re.compile("[億亿억]"), 1e8),
    (re.compile(r"(?i)lakhs?"), 1e5),
    (re.compile(r"(?i)crores?"), 1e7),
)
_MEASURES: Final[Mapping[str, Sequence[float]]] = MappingProxyType(
    {
        **dict.fromkeys(("km", "kilometers", "kilometres"), (1000, 1 / 1.609344)),
        **dict.fromkeys(("mi", "miles", "mph"), (1.609344, 1609.344)),
        **dict.fromkeys(("kg", "lb", "lbs", "pounds"), (0.45359237, 1 / 0.45359237, 1000)),
        **dict.fromkeys(("m", "ft", "feet", "cm", "g", "mm", "inches"), (0.3048, 1 / 0.3048, 0.01, 0.001, 1000, 2.54)),
        "ha": (10_000,),
        **dict.fromkeys(("€", "$", "£", "eur", "usd", "dollars", "euros"), (100,)),
    }
)
_OF_BYTES: Final = (*(base**power for power in range(1, 5) for base in (1e3, 1024.0)), 1e-3, 1 / 1024, 1e3 * 1024)


def seconds_of(unit: str) -> float:
    """Return how many seconds a unit of time has, 0 for other words."""
    known = _SECONDS.get(unit)
    return known or next((seconds for words, seconds in _TIMES if len(unit) > 1 and words.match(unit)), 0)


def is_measure(unit: str) -> bool:
    """Whether a unit says that its number is measured, not counted."""
    low = unit.lower()
    is_known = (
        low in _MEASURES or bool(_BYTES.fullmatch(unit)) or unit[:1] in "%°€$£¥" or low.startswith(("perc", "proz"))
    )
    return bool(unit) and (is_known or bool(seconds_of(unit)))


def is_scale(unit: str) -> bool:
    """Whether a word multiplies its number: `million`."""
    return any(words.fullmatch(unit) for words, _ in _SCALES)


def _factors(unit: str) -> Iterator[float]:
    """Yield how much of a source's unit one of `unit` may be."""
    if unit:
        yield from (scale for words, scale in _SCALES if words.fullmatch(unit))
        yield from _MEASURES.get(unit.lower(), ())
        if _BYTES.fullmatch(unit):
            yield from _OF_BYTES
        if seconds := seconds_of(unit):
            yield from (seconds / other for other in (0.001, 1, 60, 3600, 86_400) if other != seconds)


class Values:
    """Values in order, to find one near another."""

    def __init__(self, values: Iterable[Value]) -> None:
        self.sorted = sorted(set(values))

    def between(self, low: float, high: float, *, places: int = -1) -> bool:
        """Whether a value from `low` to below `high` has more than `places` decimal places."""
        at = bisect_left(self.sorted, (low, -1))
        while at < len(self.sorted) and self.sorted[at].number < high:
            if self.sorted[at].places > places:
                return True
            at += 1
        return False

    def equals(self, number: float) -> bool:
        """Whether a value is this number."""
        slack = abs(number) * 1e-12 + 1e-12
        return self.between(number - slack, number + slack)

    def has(self, value: Value, unit: str = "", *, about: bool = False, least: int = 2) -> bool:
        """Whether a value is this one, or one in other units or with more digits, of which this one is rounded.

        It may be rounded to `least` digits and zeros. `about`: the text says that it is not exact; it may be cut off.
        """
        number, places = value
        if self.equals(number) or not number:
            return self.equals(number)
        zeros = len(str(int(number))) - len(str(int(number)).rstrip("0")) if not places else 0
        is_rounded = bool(zeros) and len(str(int(number))) - zeros >= (1 if about else least)
        step = 10.0 ** (zeros if is_rounded else -places)
        low, high = number - step * 0.501, number + step * (0.999 if about or seconds_of(unit) else 0.501)
        if self.between(low, high, places=-1 if is_rounded else places):
            return True
        if unit[:1] == "%" and self.between(low / 100, high / 100, places=max(1, places)):
            return True
        if unit[:1] == "°":
            other = (number - 32) / 1.8 if unit[-1:].upper() == "F" else number * 1.8 + 32
            return self.between(other - 0.6, other + 0.6)
        return any(self.between(low * factor, high * factor) for factor in _factors(unit))


class Numbers:
    """The numbers of texts, and what can be made of them."""

    def __init__(self, texts: Sequence[str], in_line: str = "") -> None:
        self._texts = [_NO_QUANTITY.sub(" ", text) for text in texts]
        self._line = [readings(token)[0] for token in NUMBER.findall(in_line) if readings(token)]
        tokens = list(chain.from_iterable(map(NUMBER.findall, self._texts)))
        values = set(chain.from_iterable([*readings(token), *listed(token)] for token in set(tokens)))
        for match in chain.from_iterable(map(_VERSION.finditer, self._texts)):
            values |= {*readings(match[1]), *readings(match[2])}
        self.stated = Values(values)

    @cached_property
    def groups(self) -> Sequence[Sequence[Value]]:
        """Numbers of one column, under one name or with one unit."""
        return list(chain.from_iterable(map(_grouped, self._texts)))

    @cached_property
    def derived(self) -> Values:
        """Totals and means, sums of two, differences, and what so many of each cost."""
        pairs = [*self._pairs, *combinations((one.number for one in self._line), 2)]
        made = (Value(round(one, 6), 6) for a, b in pairs for one in (a + b, abs(a - b)))
        small = [group for group in self.groups if len(group) < _MOST_PRICED][:_MOST_PRICED]
        alike = (pair for pair in combinations(small, 2) if len(pair[0]) == len(pair[1]))
        priced = (sum(one.number * other.number for one, other in zip(a, b, strict=True)) for a, b in alike)
        amounts = (Value(round(one, 6), 6) for one in priced)
        return Values(chain(chain.from_iterable(map(_made_of, self.groups)), made, amounts))

    @cached_property
    def shares(self) -> Values:
        """How many percent one of two is of the other, more or less, and what is left of a percentage."""
        pairs = [*self._pairs, *combinations((one.number for one in self._line), 2)]
        for group in self.groups:  # with its total at an end
            most = max(one.number for one in group)
            pairs += [(one.number, most) for one in group] if most in (group[0].number, group[-1].number) else []
        shares = [100 * min(pair) / max(pair) for pair in pairs if max(pair)]
        of_whole = chain.from_iterable(map(_PERCENT.findall, self._texts))
        shares += [
            100 * max(pair) / min(pair) for pair in combinations((one.number for one in self._line), 2) if min(pair)
        ]
        left = [Value(100 - one.number, one.places) for token in of_whole for one in readings(token)]
        return Values([*left, *(Value(one, 12) for share in shares for one in (share, abs(100 - share)))])

    @cached_property
    def scaled(self) -> Values:
        """What is made of two numbers of the line by multiplication and division."""
        pairs = combinations((one.number for one in self._line if one.number), 2)
        return Values(Value(one, 12) for a, b in pairs for one in (a * b, a / b, b / a))

    @property
    def _pairs(self) -> Iterator[tuple[float, float]]:
        """Yield large numbers that stand near each other in a text."""
        for text in self._texts:
            found = [one.number for token in NUMBER.findall(text) for one in readings(token)[:1]]
            pairs = chain(pairwise(found), zip(found, found[2:], strict=False))
            yield from (pair for pair in pairs if min(pair) >= _LARGE)

    @cached_property
    def sizes(self) -> set[int]:
        """How many items there are: lines, blocks, elements of JSON, items of a list in a line."""
        return {len(self._texts), *chain.from_iterable(map(_sizes, self._texts))}

    def beyond(self, limits: Iterable[float]) -> set[int]:
        """Return how many numbers of each group are above or below a limit, or equal to it."""
        counts = set[int]()
        for limit in limits:
            for group in self.groups:
                compared = Counter((one.number > limit) - (one.number < limit) for one in group)
                counts |= {*compared.values(), compared[1] + compared[0], compared[-1] + compared[0]}
        return counts


def _grouped(text: str) -> Iterator[Sequence[Value]]:
    """Yield the numbers of a text by the words around them, by their place in the line, and by line."""
    groups = dict[tuple[str, str | int], list[Value]]()
    for line in text.splitlines():
        whole, is_list = list[Value](), line.count(",") - line.count(", ") > 1
        for match in NUMBER.finditer(line):
            before = _LABEL.search(line, max(0, match.start() - _LABEL_CHARS), match.start())
            after = _FOLLOWING.match(line, match.end())
            names = ("before", before[1].lower() if before else ""), ("after", after[1].lower() if after else "")
            in_list = " " in match[0] or (is_list and "," in match[0])
            for value in listed(match[0]) if in_list else readings(match[0])[:1]:
                whole.append(value)
                for name in (*names, ("column", len(whole))):
                    groups.setdefault(name, []).append(value)
        if 1 < len(whole) < _SMALL:
            yield whole
    yield from (group for group in groups.values() if len(group) > 1)


def _made_of(group: Sequence[Value]) -> Iterator[Value]:
    """Yield the sum of a group, of each two of a small one, the mean, and the difference of its ends."""
    numbers, places = [one.number for one in group], max(one.places for one in group)
    pairs = combinations(numbers, 2) if len(numbers) <= _SMALL else ()
    sums = (sum(numbers), max(numbers) - min(numbers), *map(sum, pairs))
    yield from (Value(round(one, places), places) for one in sums)
    yield Value(sum(numbers) / len(numbers), 12)


_ITEM: Final = re.compile(r"\s*(?:[-*•+]|\d+[.)])\s")


def _sizes(text: str) -> Iterator[int]:
    lines = [line for line in text.splitlines() if line.strip()]
    yield from (len(lines), len(lines) - 1, len(lines) - 2)  # without a header and the rule below it
    yield sum(bool(_ITEM.match(line)) for line in lines)
    yield from (len(block.splitlines()) for block in re.split(r"\n\s*\n", text))
    yield from (line.count(",") + 1 for line in lines)
    try:
        value: Any = json.loads(text) if text.lstrip()[:1] in ("{", "[") else None
    except (ValueError, RecursionError):
        return
    yield from _json_sizes(value)


def _json_sizes(value: Any) -> Iterator[int]:
    left, by_key = [value], dict[str, set[str]]()
    while left:
        one: Any = left.pop()
        if isinstance(one, (dict, list)):
            yield len(cast("list[Any]", one))
            for key, inner in cast("dict[str, Any]", one).items() if isinstance(one, dict) else ():
                if isinstance(inner, (str, int, bool)):
                    by_key.setdefault(key, set()).add(str(inner))
            left += cast("dict[str, Any]", one).values() if isinstance(one, dict) else cast("list[Any]", one)
    yield from map(len, by_key.values())
