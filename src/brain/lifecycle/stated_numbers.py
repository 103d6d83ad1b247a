"""The numbers of sources and answers: how they are written, and what a number may be made of."""

import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, combinations, islice, pairwise, product
from statistics import fmean, median
from typing import Final, NamedTuple

NUMBER: Final = re.compile(
    r"(?<!\d)(?:(?<![A-Za-z])\d{1,3}(?:[,.'’\u00a0\u202f ]\d{3})+(?!\d)(?:[.,]\d+)?"
    r"|\d{1,3}(?:,\d\d)+,\d{3}(?!\d)(?:\.\d+)?|\d+(?:\.\d+|,\d{1,3}(?![\d.,]{0,9}\d))?)"
)
_CSV: Final = re.compile(r"\ufeff?[\"A-Za-z_](?:[^,\n]*,(?! )){2}[^\n]*\n")  # its first line
TABLE: Final = "|"
"""The unit of a number in a table, where only the head of its column may have one."""
UNIT: Final = re.compile(
    r"[*_`]{0,3}[ \u00a0\u202f-]?([万萬亿億]|(?i:p(?:er|our|or|ro) ?[cz]i?ent\w*)|°\s?[CF]|[%\uff05℃℉€$£¥₹]|× ?10"
    r"|[^\W\d_]+)?"
)
CURRENCY: Final = re.compile(
    r"(?:[€$£¥₹]|(?<![A-Za-z])(?:EUR|USD|GBP|CHF|PLN|JPY|CNY|NOK|SEK|DKK|CZK|HUF|CAD|AUD|INR|BRL|kr|zł|元|円)(?![A-Za-z]))"
    r"\s?[*_]*$"
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
SCALES: Final = {word: scale for scale, words in _SCALE_WORDS.items() for word in words.split()}
MEASURE: Final = re.compile(r"(?i)[kmgt]?i?B|[kcm]?m|k?g|m?l|ms|°\s?[CF]|[℃℉]|k?Wh?|[kmg]?Hz|mph|px|[rb]pm")
_BYTES: Final = re.compile(r"(?i)([kmgt]?)i?(?:b|bytes?|bits?|o)?")
_OTHER_UNITS: Final = {
    unit: factors for units, factors in (
        ("km kmh", (1 / 1.609344, 1 / 3.6, 1 / 3600)), ("mi mile miles meilen mph", (1.609344,)), ("m", (3.28084,)),
        ("ft feet foot fuß", (0.3048,)), ("cm", (1 / 2.54, 1 / 30.48, 10, 0.01)), ("in inch inches zoll", (2.54,)),
        ("kg", (2.20462,)), ("lb lbs pounds", (1 / 2.20462,)), ("g", (1 / 28.3495,)), ("t tonnes", (1.10231,)),
        ("m²", (1 / 4046.86, 10.7639)), ("ha hektar hectares", (2.47105,)), ("l liters litres", (1 / 3.78541,)),
        ("hpa", (1 / 33.8639,)), ("kcal", (4.184,)), ("mb", (8,)),
    ) for unit in units.split()
}  # fmt: skip
_PER_TIME: Final = (60, 1 / 60, 1 / 12, 1 / 7)
_TIMES: Final = (1, *(1 / times for times in (2, 3, 4, 5, 6, 7, 8, 9, 12)))
_SHORT, _MOST_MADE = 10, 10_000  # numbers in a row or column; pairs and totals of sources
_NEAREST: Final = {2: 4, 3: 8, 4: 16}
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


def readings(token: str) -> list[Reading]:
    """Return what a number may mean as it is written: `1,234` is 1234 or 1.234; 1,000 has one digit."""
    plain, digits = re.sub(r"[^\d.,]", "", token), re.sub(r"\D", "", token)
    marks = re.findall(r"\D", plain)
    zeros = len(digits) - max(1 if len(digits) > 3 else 3, len(digits.rstrip("0")))
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
    others = _OTHER_UNITS.get(low, ()) if stated else ()
    if unit.startswith("×"):
        return [10.0**power for power in range(-30, 31)]
    if low in SCALES:
        return (SCALES[low], SCALES[low] / 1000, 1, 0.001, *others)
    if unit not in ("", "o") and (size := _BYTES.fullmatch(unit)):
        power = " kmgt".index(size[1].casefold() or " ")
        return [one**shift for one in (1000.0, 1024.0) for shift in range(power - 4, power + 1)] + [*others]
    if not stated or not unit:
        return (1,)
    if unit == TABLE:
        return (0.01, *(base**shift for base in (1000.0, 1024.0) for shift in range(-1, 4)))
    return (1, 0.01) if unit == "%" else (1, 100) if CURRENCY.match(unit) else (1, 1000, 0.001, *others)


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
    whole = list(chain.from_iterable(rows))  # of a short text is a row
    return [*columns.values(), *rows, *([whole] if len(whole) <= _SHORT else ())]


def _totals(row: Sequence[float]) -> Iterator[float]:
    """Yield the mean, median and sum of a row, and sums of what stands side by side in it if it is short."""
    runs = combinations(range(len(row) + 1), 2) if len(row) <= _SHORT else [(0, len(row))]
    yield from (sum(row[start:end]) for start, end in runs if end - start > 1)
    yield from (fmean(row), median(row)) if len(row) > 1 else ()


def _parts(row: Sequence[float]) -> Iterator[float]:
    """Yield what percentage each number of a row is of their sum."""
    whole = sum(row)
    yield from (100 * one / whole for one in row) if whole else ()


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
    """The numbers of texts, and what they make: counts, totals, means, two of a row or column, what was `asked` for."""

    def __init__(self, sources: Sequence[str], asked: Sequence[str]) -> None:
        texts = [text.replace(",", "\t") if _CSV.match(text) else text for text in sources]
        self._stated = {one.value for text in texts for token in NUMBER.findall(text) for one in readings(token)}
        rows = [[value for value, _ in row] for text in texts for row in rows_of(text)]
        lines = (text.count("\n") + more for text in texts for more in (0, 1))
        counts = chain(lines, *(Counter(_WORD.findall(text)).values() for text in texts))
        totals = islice(chain.from_iterable(map(_totals, rows)), _MOST_MADE)
        pairs = chain.from_iterable(combinations(row, 2) if len(row) <= _SHORT else pairwise(row) for row in rows)
        some = set(islice(pairs, _MOST_MADE))
        self._known = sorted({*self._stated, *totals, *map(float, counts)})
        parts = chain.from_iterable(map(_parts, rows))
        self._shares = sorted([*_made_of(some, "%"), *parts, *(100 - one for one in self._stated if one < 100)])
        self._made = sorted(_made_of(some, ""))
        wanted = {one.value for text in asked for token in NUMBER.findall(text) for one in readings(token)}
        scaled = product(wanted, (1, *self._stated), (1, *self._stated)) if len(wanted) < 5 else ()
        self._scaled = sorted(a * b / c for a, b, c in islice(scaled, _MOST_MADE) if c)

    def have(self, number: Reading, unit: str) -> bool:
        """Whether the texts have a number, in whatever unit, or what makes it."""
        most = 10**number.digits
        made = ((self._shares if unit == "%" else self._made, 3 * most), (self._scaled, most))
        places = [(values, factors_of(unit)) for values, limit in made if len(values) <= limit]  # more would make any
        times = _TIMES if len(self._known) < 0.02 * most else ()
        places.append((self._known, (*factors_of(unit, stated=True), *times)))
        bounds = ((values, *number.times(factor)) for values, factors in places for factor in factors)
        return any(bisect_left(values, low) < bisect_right(values, high) for values, low, high in bounds)

    def make(self, number: Reading, unit: str, start: int, rows: Sequence[Sequence[Placed]]) -> bool:
        """Whether others of an answer make a number: of a list or column, near ones, or a near and a stated one."""
        others = [[one for one in row if one[1] != start and one[0] != number.value] for row in rows]
        values = [[value for value, _ in row] for row in others]
        near = [value for value, _ in sorted(set(chain.from_iterable(others)), key=lambda one: abs(one[1] - start))]
        is_share, few = unit == "%" or unit.startswith("percent"), len(self._stated) <= 0.02 * 10**number.digits
        pairs = combinations(near[: 12 if is_share else _NEAREST.get(number.digits, 40)], 2)
        stated = product(near[:4], self._stated if few and is_share else ())
        degrees = (one for value in near[:4] if unit and unit[-1] in "CFK℃℉" for one in _degrees(value))
        totals = chain.from_iterable(map(_parts if is_share else _totals, values))
        made = chain(totals, _made_of(chain(pairs, stated), unit), degrees)
        factors = (*factors_of(unit, stated=True), *_PER_TIME) if unit not in ("", "%", TABLE) else ()
        bounds, converted = ([number.times(factor) for factor in some] for some in (factors_of(unit), factors))
        places = chain(product(made, bounds), product(near[:4], converted))
        return any(low <= one <= high for one, (low, high) in places)


def _degrees(value: float) -> Iterator[float]:
    yield from (value * 1.8 + 32, (value - 32) / 1.8, value - 273.15, value + 273.15, (value - 273.15) * 1.8 + 32)
