"""The numbers of sources and answers: how they are written, and what a number may be made of."""

import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, combinations, islice, pairwise, product
from statistics import fmean
from typing import Final, NamedTuple

NUMBER: Final = re.compile(
    r"(?<!\d)(?:(?<![A-Za-z])\d{1,3}(?:[,.'’\u00a0\u202f ]\d{3})+(?!\d)(?:[.,]\d+)?"
    r"|\d{1,3}(?:,\d\d)+,\d{3}(?!\d)(?:\.\d+)?|\d+(?:\.\d+|,\d{1,3}(?![\d.,]{0,9}\d))?)"
)
TABLE: Final = "|"
"""The unit of a number in a table, where only the head of its column may have one."""
UNIT: Final = re.compile(
    r"[*_`]{0,3}[ \u00a0\u202f-]?([万萬亿億]|(?i:p(?:er|our|or|ro) ?[cz]i?ent\w*)|°\s?[CF]|[%℃℉€$£¥₹]|× ?10|[^\W\d_]+)?"
)
CURRENCY: Final = re.compile(r"(?:[€$£¥₹]|(?<![A-Za-z])(?:EUR|USD|GBP|CHF|PLN|JPY|CNY|zł|元|円)(?![A-Za-z]))\s?[*_]*$")
ABOUT: Final = re.compile(
    r"(?i)(?:[~≈><≥≤]|\b(?:about|around|approx\w*|roughly|nearly|almost|some|over|under|than|least|most|rund|etwa|knapp|fast"
    r"|gut|circa|ca\.?|über|unter|als|environ|(?:près|plus|moins|cerca|más|menos) de|unos|casi|około|prawie|ponad)"
    r"|[约約近超])\s?[€$£¥*_]*$"
)
DATE: Final = re.compile(
    r"(?i)(?<![\w.])(?:\d{4}([-/.])\d{1,2}\1\d{1,2}(?!\d)|\d{1,2}([-/.])\d{1,2}\2(?:19|20)\d\d(?!\d)"
    r"|\d{1,2}\.\d{1,2}\.(?=\s(?-i:[a-zäöü(\d])|[,;)]))|\b\d{1,2}\.\d\d(?=\s?Uhr)"
    r"|(?:(?<=T)|(?<![\w:.,]))\d{1,2}[:h]\d\d(?::\d\d(?:[.,]\d+)?)?(?![:\d])"
)
DURATION: Final = re.compile(
    r"(?i)(?<![\w.,])\d+(?:[.,]\d+)?[\s-]?(?:h|hrs?|min|std|d|ans?|lat|(?:hour|stunde|heure|hora|godzin|minut|day|tag|jour"
    r"|d[ií]a|week|woche|semain|seman|month|monat|mois|mes|year|jahr|a[nñ]o)\w{0,3}|小时|小時|時間|分钟|分|天|日|週|周|年)(?![A-Za-z])"
)
_DECIMAL_COMMA: Final = re.compile(r"\d,\d\d?[ \u00a0]?[€%°A-Za-z]")
_WORD: Final = re.compile(r"[^\W\d_]+")
_SCALE_WORDS: Final = {
    1e3: "k thousand tausend tsd tys mil", 1e4: "万 萬", 1e5: "lakh", 1e7: "crore", 1e8: "亿 億",
    1e6: "m mn mio mln million millions millionen millones milioni milhão milhões",
    1e9: "bn billion mrd mld milliarden milliards",
}  # fmt: skip
_SCALES: Final = {word: scale for scale, words in _SCALE_WORDS.items() for word in words.split()}
MEASURE: Final = re.compile(r"(?i)[kmgt]?i?B|[kcm]?m|k?g|m?l|ms|°\s?[CF]|[℃℉]|k?Wh?|[kmg]?Hz|mph|px|rpm")
_BYTES: Final = re.compile(r"(?i)([kmgt]?)i?(?:b|bytes?|bits?|o)?")
_FACTORS: Final = (60, 3600, 24, 7, 12, 365, 3.6, 1.609344, 3.28084, 30.48, 2.54, 2.20462)
_SHORT, _MOST_MADE = 10, 10_000  # numbers in a row or column; pairs and totals of sources
_NEAREST: Final = {2: 6, 3: 8, 4: 16}
"""So many numbers near one of so many digits may make it: more would make any number."""


class Reading(NamedTuple):
    """A number, and the one of its last digit."""

    value: float
    step: float

    @property
    def digits(self) -> int:
        return max(2, len(str(round(self.value / self.step))))

    def times(self, factor: float) -> tuple[float, float]:
        """Return the bounds of what is rounded to this number of some unit."""
        around = self.step / 2 + 1e-9 * self.value
        return (self.value - around) * factor, (self.value + around) * factor


def readings(token: str, *, about: bool = False) -> list[Reading]:
    """Return what a number may mean as it is written: `1,234` is 1234 or 1.234; `about` 1,000 has one digit."""
    plain, digits = re.sub(r"[^\d.,]", "", token), re.sub(r"\D", "", token)
    marks = re.findall(r"\D", plain)
    zeros = len(digits) - max(1 if about else 3, len(digits.rstrip("0")))
    grouped = Reading(float(digits), 10.0 ** max(0, zeros))
    if not marks or marks.count(marks[-1]) > 1:
        return [grouped]
    whole, _, tail = plain.rpartition(marks[-1])
    pointed = Reading(float(f"{re.sub(r'\D', '', whole)}.{tail}"), 10.0 ** -len(tail))
    if len(set(marks)) > 1 or len(tail) != 3 or whole == "0":
        return [pointed]
    return [grouped, pointed] if marks[-1] == "," else [pointed, grouped]


def factors_of(unit: str, *, stated: bool = False) -> Sequence[float]:
    """Return what a number of this unit may be multiplied by to be one in another unit, or what is `stated` in one."""
    low = unit.casefold()
    if unit.startswith("×"):
        return [10.0**power for power in range(-30, 31)]
    if low in _SCALES:
        return (_SCALES[low], _SCALES[low] / 1000, 1, 0.001)
    if unit not in ("", "o") and (size := _BYTES.fullmatch(unit)):
        power = " kmgt".index(size[1].casefold() or " ")
        return [one**shift for one in (1000.0, 1024.0) for shift in range(power - 4, power + 1)]
    if not stated or not unit:
        return (1,)
    if unit == TABLE:
        return (0.01, *(base**shift for base in (1000.0, 1024.0) for shift in range(-1, 4)))
    return (1, 0.01) if unit == "%" else (1, 100) if CURRENCY.match(unit) else (1, 1000, 0.001)


type Placed = tuple[float, int]
"""A number of a text, and where it stands."""


def rows_of(text: str) -> Sequence[Sequence[Placed]]:
    """Return the numbers of each row of a text, and of each column: those at one position, or beside one word."""
    rows, columns, at, block = list[list[Placed]](), defaultdict[object, list[Placed]](list), 0, 0
    has_comma = bool(_DECIMAL_COMMA.search(text))
    for row in re.split(r"(?<=\})" if text.lstrip()[:1] in ("{", "[") else r"(?<=\n)", text):
        undated = DATE.sub(lambda match: " " * len(match[0]), row)
        block += not row.strip()
        rows.append([])
        for index, match in enumerate(NUMBER.finditer(undated)):
            one = (readings(match[0])[-has_comma].value, at + match.start())
            rows[-1].append(one)
            for key in {(block, index), *_WORD.findall(row[max(0, match.start() - 30) : match.start()])[-1:]}:
                columns[key].append(one)
        at += len(row)
    return [*columns.values(), *rows]


def _totals(row: Sequence[float]) -> Iterator[float]:
    """Yield the mean and sum of a row, and sums of what stands side by side in it if it is short."""
    runs = combinations(range(len(row) + 1), 2) if len(row) <= _SHORT else [(0, len(row))]
    yield from (sum(row[start:end]) for start, end in runs if end - start > 1)
    yield from [fmean(row)] if len(row) > 1 else []


def _made_of(pairs: Iterable[tuple[float, float]], unit: str) -> Iterator[float]:
    """Yield what pairs of numbers make: a share or growth in percent, or a sum, difference, product or ratio."""
    for one, other in pairs:
        less, more = sorted((one, other))
        if unit == "%":
            yield from (100 * less / more, 100 * (more - less) / more) if more else ()
            yield from (100 * more / less, 100 * (more - less) / less) if less else ()
        else:
            yield from (one + other, more - less, one * other, one * other / 100)
            yield from (more / less, less / more) if less else ()


class Numbers:
    """The numbers of texts, and what is made of them: counts, totals, means, and what two of a row or column make."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._stated = {one.value for text in texts for token in NUMBER.findall(text) for one in readings(token)}
        rows = [[value for value, _ in row] for text in texts for row in rows_of(text)]
        counts = (count for text in texts for count in (text.count("\n") + 1, *Counter(_WORD.findall(text)).values()))
        totals = islice(chain.from_iterable(map(_totals, rows)), _MOST_MADE)
        pairs = chain.from_iterable(combinations(row, 2) if len(row) <= _SHORT else pairwise(row) for row in rows)
        some = set(islice(pairs, _MOST_MADE))
        self._known = sorted({*self._stated, *totals, *map(float, counts)})
        self._shares, self._made = (sorted(_made_of(some, unit)) for unit in ("%", ""))

    def have(self, number: Reading, unit: str) -> bool:
        """Whether the texts have a number, in whatever unit, or what makes it."""
        made = self._shares if unit == "%" else self._made
        made = made if len(made) <= 3 * 10**number.digits else ()  # more would make any number
        places = ((self._known, factors_of(unit, stated=True)), (made, factors_of(unit)))
        bounds = ((values, *number.times(factor)) for values, factors in places for factor in factors)
        return any(bisect_left(values, low) < bisect_right(values, high) for values, low, high in bounds)

    def make(self, number: Reading, unit: str, start: int, rows: Sequence[Sequence[Placed]]) -> bool:
        """Whether others of an answer make a number: of a list or column, near ones, in another unit, or stated."""
        others = [[one for one in row if one[1] != start and one[0] != number.value] for row in rows]
        totals = chain.from_iterable(_totals([value for value, _ in row]) for row in others)
        near = [value for value, _ in sorted(set(chain.from_iterable(others)), key=lambda one: abs(one[1] - start))]
        pairs = combinations(near[: 12 if unit == "%" else _NEAREST.get(number.digits, 40)], 2)
        stated = self._stated if unit != "%" and len(self._stated) <= 0.02 * 10**number.digits else ()
        scaled = ((a * b, a * b / 100, a / b, b / a) for a, b in product(near[:4], stated) if a and b)
        bounds = [number.times(factor) for factor in factors_of(unit)]
        is_measure = unit and unit[0] not in "|%€$£¥₹" and len(bounds) == 1  # of any kind
        converted = (one for value in near[:4] if is_measure for one in _converted(value))
        rests = product(near[:4], stated if number.digits > 5 else ())
        made = chain(totals, converted, chain.from_iterable(scaled), _made_of(chain(pairs, rests), unit))
        return any(low <= one <= high for one in made for low, high in bounds)


def _converted(value: float) -> Iterator[float]:
    yield from (value * factor for factor in _FACTORS)
    yield from (value / factor for factor in _FACTORS)
    yield from (value * 1.8 + 32, (value - 32) / 1.8, value - 273.15, value + 273.15, (value - 273.15) * 1.8 + 32)
