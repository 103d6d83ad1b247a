"""Extracts values from a text: paths, quoted strings, numbers, times, places and names, with their positions."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Literal
from zoneinfo import available_timezones

from starling.infra.llm.offline.tokenization import STOP_WORDS, normalize, tokens

type Kind = Literal["quoted", "url", "email", "zone", "path", "glob", "date", "time", "revision", "number", "name"]

_SCAN = re.compile(
    r"""
      (?P<quoted>"[^"\n]+"|“[^”\n]+”|«[^»\n]+»|`[^`\n]+`|(?<!\w)'[^'\n]+'(?!\w))
    | (?P<url>\b[a-z][a-z0-9+.-]*://[^\s"'<>]+)
    | (?P<email>(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+)
    | (?P<zone>\b(?:UTC|GMT|[A-Z][A-Za-z_]+(?:/[A-Z][\w+-]+){1,2})\b)
    | (?P<date>\b\d{4}-\d\d-\d\d\b)
    | (?P<time>\b\d{1,2}:\d\d(?::\d\d)?(?:\s?[ap]m\b)?|\b\d{1,2}\s?[ap]m\b)
    | (?P<glob>(?<!\S)[\w./-]*\*[\w./*-]*)
    | (?P<path>(?<![\w/])(?:~|\.{1,2})?/[^\s"'<>|,;]*|\b[A-Za-z]:\\[^\s"'<>|,;]*
        |(?<![\w/.-])[\w.-]+(?:/[\w.-]+)+|(?<![\w/.-])\w[\w-]*(?:\.\w+)*\.[A-Za-z]\w{0,4}\b(?!\.\w))
    | (?P<revision>(?-i:\bHEAD)(?:[~^]\d*)*(?!\w)|\b(?=\d*[a-f])(?=[a-f]*\d)[0-9a-f]{7,40}\b
        |\b(?:last|latest|newest|most\ recent)\ (?:commit|revision)\b)
    | (?P<number>(?<![\w.])-?\d+(?:[.,]\d+)*(?!\w))
    """,
    re.VERBOSE | re.IGNORECASE,
)
_WORDS = re.compile(r"[^\W\d_][\w'’-]*")
_NUMBER_WORDS: dict[str, int] = {
    "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6,
    "seven": 7, "eight": 8, "nine": 9, "ten": 10, "eleven": 11, "twelve": 12,
}  # fmt: skip
_PLACE_PREPOSITIONS = ("in", "at", "for", "from", "to", "of", "and", "between")
_AREAS = ("Africa", "America", "Antarctica", "Arctic", "Asia", "Atlantic", "Australia", "Europe", "Indian", "Pacific")
_NEWEST = "HEAD"  # the revision meant by "the last commit"
_LONGEST_PLACE = 4
_READ_CHARS = 20_000
_MOST_VALUES = 200


@dataclass(frozen=True, slots=True)
class Value:
    """A value with its position. `value` is the normalized form (`America/Lima`), `text` the original (`Lima`)."""

    kind: Kind
    value: str
    text: str
    start: int
    end: int


@cache
def _zone_names() -> frozenset[str]:
    return frozenset(available_timezones())


@cache
def _zone_by_place() -> dict[str, str]:
    """Return time zones by normalized place name; if several match, the one with the shortest name."""
    found: dict[str, str] = {}
    for zone in sorted(_zone_names(), key=lambda name: (name.count("/"), name)):
        area, _, place = zone.rpartition("/")
        country = not area and zone.isalpha() and zone[1:].islower() and len(zone) > 3
        if country or area.split("/")[0] in _AREAS:
            found.setdefault(normalize(place.replace("_", " ")), zone)
    return found


@lru_cache(maxsize=1_024)
def extract_values(text: str) -> tuple[Value, ...]:
    """Return the values of a text in order, without overlaps. Only the beginning of a very long text is read."""
    read = text[:_READ_CHARS]
    found = list(_pattern_values(read))
    taken = [False] * len(read)
    for value in found:
        taken[value.start : value.end] = [True] * (value.end - value.start)
    words = [match for match in _WORDS.finditer(read) if not taken[match.start()]]
    found.extend(_word_values(read, words))
    return tuple(sorted(found, key=lambda value: value.start)[:_MOST_VALUES])


def _pattern_values(text: str) -> Iterator[Value]:
    for match in _SCAN.finditer(text):
        kind, raw = match.lastgroup, match[0]
        if kind == "zone" and raw not in _zone_names():
            kind = "path" if "/" in raw else None
        if kind == "quoted":
            yield Value("quoted", raw[1:-1], raw, *match.span())
        elif kind in ("path", "url"):
            raw = raw.rstrip(".,;:?!)") or raw
            yield Value(kind, raw, raw, match.start(), match.start() + len(raw))
        elif kind == "revision":
            yield Value(kind, _NEWEST if " " in raw else raw, raw, *match.span())
        elif kind in ("email", "zone", "date", "time", "glob", "number"):
            yield Value(kind, raw, raw, *match.span())


def _word_values(text: str, words: list[re.Match[str]]) -> Iterator[Value]:
    """Yield places, number words and names, the longest match first."""
    index = 0
    while index < len(words):
        found = _place_at(text, words, index) or _name_at(text, words, index)
        if found is None:
            number = _NUMBER_WORDS.get(words[index][0].casefold())
            if number is not None:
                yield Value("number", str(number), words[index][0], *words[index].span())
            index += 1
            continue
        value, index = found
        yield value


def _adjacent_text(text: str, words: list[re.Match[str]], first: int, last: int) -> str | None:
    """Return the text from one word to another if only spaces are between the words."""
    run = text[words[first].start() : words[last].end()]
    gaps = (text[words[i].end() : words[i + 1].start()] for i in range(first, last))
    return run if all(gap and gap.isspace() for gap in gaps) else None


def _place_at(text: str, words: list[re.Match[str]], index: int) -> tuple[Value, int] | None:
    placed = index > 0 and words[index - 1][0].casefold() in _PLACE_PREPOSITIONS
    if not (words[index][0][0].isupper() or placed):
        return None
    for last in range(min(index + _LONGEST_PLACE, len(words)) - 1, index - 1, -1):
        run = _adjacent_text(text, words, index, last)
        name = re.sub(r"['’]s$", "", run) if run else ""
        zone = _zone_by_place().get(normalize(name)) if name else None
        if zone is not None:
            start = words[index].start()
            return Value("zone", zone, name, start, start + len(name)), last + 1
    return None


def _name_at(text: str, words: list[re.Match[str]], index: int) -> tuple[Value, int] | None:
    """Return a sequence of capitalized words that is not at the start of a sentence."""
    if not _is_capitalized(words[index][0]) or _opens_sentence(text, words[index].start()):
        return None
    last = index
    while last + 1 < len(words) and _is_capitalized(words[last + 1][0]) and _adjacent_text(text, words, last, last + 1):
        last += 1
    start = words[index].start()
    run = re.sub(r"['’]s$", "", text[start : words[last].end()])
    return Value("name", run, run, start, start + len(run)), last + 1


def _is_capitalized(word: str) -> bool:
    return word[0].isupper() and not STOP_WORDS.issuperset(tokens(word))


def _opens_sentence(text: str, position: int) -> bool:
    before = text[max(0, position - 20) : position]
    stripped = before.rstrip()
    return not stripped or stripped[-1] in ".?!:;\n" or "\n" in before[len(stripped) :]


def values_of_kind(text: str, *kinds: Kind) -> list[Value]:
    """Return the values of the given kinds."""
    return [value for value in extract_values(text) if value.kind in kinds]


def mask_values(text: str) -> str:
    """Return the text with its values masked, except names, places and revisions; the length is unchanged."""
    chars = list(text)
    for value in extract_values(text):
        if value.kind not in ("name", "zone", "revision"):
            chars[value.start : value.end] = "\ufffc" * (value.end - value.start)
    return "".join(chars)


def to_24_hour_time(text: str) -> str:
    """Return a time of day as HH:MM."""
    match = re.match(r"(\d{1,2})(?::(\d\d))?(?::\d\d)?\s?([ap]m)?", text, re.IGNORECASE)
    if match is None:
        return text
    hour = int(match[1])
    if match[3]:
        hour = hour % 12 + (12 if match[3].lower() == "pm" else 0)
    return f"{hour:02}:{match[2] or '00'}"
