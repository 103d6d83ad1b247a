"""What texts hold: words and their stems, values (quoted text, paths, times, time zones, numbers), XML and JSON."""

import html
import json
import re
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any, Literal, NamedTuple, cast
from zoneinfo import available_timezones

type Kind = Literal["text", "path", "time", "zone", "number"]

_WORD = re.compile(r"[^\W_]+(?:['’][^\W\d_]+)?")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_ENDINGS = (("ies", "y"), ("sses", "ss"), ("xes", "x"), ("ches", "ch"), ("shes", "sh"), ("zes", "z"))
POLITE = re.compile(
    r"\W*(?:(?:and|then|also|but|so|please|kindly)\b[\s,]*)*"
    r"(?:(?:(?:can|could|would|will) you|i(?: want|['’]d like| would like| need)(?: you)? to|let me)\b\s*)?"
    r"(?:please\b\s*)?(?:(?:in|on|at|to|from|of)\s+(?=which|what|how))?",
    re.IGNORECASE,
)
_VALUE = re.compile(
    r"""
      (?P<text>"[^"\n]+"|“[^”\n]+”|`[^`\n]+`|(?<!\w)'[^'\n]+'(?!\w))
    | (?P<time>\b\d{1,2}:\d\d\b)
    | (?P<zone>\b[A-Z][A-Za-z_]+(?:/[A-Z][\w+-]+){1,2}\b|\b(?:UTC|GMT)\b)
    | (?P<path>(?<![\w/])(?:~|\.{1,2})?/[^\s"'<>|,;]*|(?<![\w/.-])[\w-]+(?:[./][\w-]+)*\.[A-Za-z]\w{0,4}\b)
    | (?P<number>(?<![\w.])-?\d+(?:\.\d+)?(?!\w))
    | (?i:\b(?:in|to|from|for|of|and|or)\s+|,\s*)(?P<place>[^\W\d_]+(?:[ -][^\W\d_]+){0,2})
    """,
    re.VERBOSE,
)
_AREAS = ("Africa", "America", "Antarctica", "Arctic", "Asia", "Atlantic", "Australia", "Europe", "Indian", "Pacific")
_READ_CHARS, _MOST_VALUES = 20_000, 100


class Word(NamedTuple):
    """A word of a text with its position."""

    text: str
    stem: str
    start: int


class Value(NamedTuple):
    """A value with its position. `value` is what a tool gets, `text` what the request says."""

    kind: Kind
    value: object
    text: str
    start: int
    end: int


@lru_cache(maxsize=20_000)
def stem(word: str) -> str:
    """Return a word in lower case without common English endings."""
    cut = word.casefold()
    for ending, short in _ENDINGS:
        if cut.endswith(ending) and len(cut) > 4:
            cut = cut.removesuffix(ending) + short
    cut = cut[:-1] if len(cut) > 3 and cut.endswith("s") and not cut.endswith(("ss", "us", "is")) else cut
    for ending in ("ing", "ed"):
        if cut.endswith(ending) and len(cut) >= len(ending) + 2:
            cut = cut.removesuffix(ending)
            cut = cut[:-1] if cut[-2:-1] == cut[-1] and cut[-1] not in "ls" else cut
    return cut[:-1] if cut.endswith("e") and len(cut) > 2 else cut


def _stemmed(words: str) -> frozenset[str]:
    return frozenset(map(stem, words.split()))


READ_VERBS = _stemmed(
    """show tell give get print display see know list read return retrieve search find look open describe count fetch
    query check compute convert calculate report view explain"""
)
_ASKING = READ_VERBS | _stemmed(
    "run call use execute what which how who whom whose when where why is are do does did was were will has"
)
GREETINGS = _stemmed("hello hi hey thanks thank bye ok okay good morning evening there who")
_FREE = _stemmed(
    """run call use execute show tell give get print display see know list a an the this of in on at to from by for with
    into onto and or as that is are am be do does has have it i me my we us our you your please kindly can what which
    how much now current currently called named also"""
)
# Words of a request that no description of a tool contains.
RESTRICTING = _stemmed(
    """not no never none nor neither without except unless only if than instead again was were did had been will would
    should may might yesterday tomorrow today tonight ago later earlier before after until during many who whom whose
    when where why its there them they those these same"""
)


@lru_cache(maxsize=1_024)
def words_of(text: str) -> tuple[Word, ...]:
    """Return the words that not every request may contain; camelCase and snake_case are split."""
    found: list[Word] = []
    for match in _WORD.finditer(text, len(text) - len(POLITE.sub("", text, count=1))):
        base = re.sub(r"['’]s$", "", match[0])  # other contractions, such as “isn't”, are words of their own
        found += [Word(match[0], stem(piece), match.start()) for piece in _CAMEL.split(base)]
    return tuple(word for word in found if word.stem not in _FREE)


@lru_cache(maxsize=4_096)
def stems(text: str) -> frozenset[str]:
    """Return the stems of the words that not every request may contain."""
    return frozenset(word.stem for word in words_of(text))


def only_asks(text: str) -> bool:
    """Return whether a request begins as a question or with a verb that changes nothing."""
    return opening(text) in _ASKING


def opening(text: str) -> str:
    """Return the stem of the first word of a request, after words of politeness and connection."""
    first = re.match(r"[^\W_]+", POLITE.sub("", text, count=1))
    return stem(first[0]) if first else ""


@cache
def zones() -> dict[str, str]:
    """Return time zones by their names, and by city those of the form Area/City."""
    cities = [name for name in sorted(available_timezones()) if name.count("/") == 1 and name.split("/")[0] in _AREAS]
    by_city = {name.partition("/")[2].replace("_", " ").casefold(): name for name in cities}
    return by_city | {name: name for name in available_timezones()}


@lru_cache(maxsize=512)
def values_of(text: str) -> tuple[Value, ...]:
    """Return the values of a text in order, without overlaps; only the beginning of a very long text is read."""
    found: list[Value] = []
    at = 0
    while len(found) < _MOST_VALUES and (match := _VALUE.search(text, at, min(len(text), _READ_CHARS))):
        value = _place(match) if match["place"] else _value(match)
        found += [value] if value else []
        at = value.end if value else match.start("place")
    return tuple(found)


def _value(match: re.Match[str]) -> Value:
    kind, raw = match.lastgroup, match[0]
    value: object = raw
    if kind == "text":
        kind, value = "path" if raw[1] in "/~" else "text", raw[1:-1]
    elif kind == "path":
        raw = value = raw.rstrip(".,:?!)") or raw
    elif kind == "number":
        value = float(raw) if "." in raw else int(raw)
    elif kind == "time":
        value = raw.rjust(5, "0")
    elif kind != "zone" or raw not in zones():
        kind = "path"
    return Value(kind, value, raw, match.start(), match.start() + len(raw))


def _place(match: re.Match[str]) -> Value | None:
    """Return the longest city, or country in title case, that is a time zone at the position of a match."""
    name, start = match["place"], match.start("place")
    while name:
        if zone := zones().get(name if name.istitle() and name in zones() else name.casefold()):
            return Value("zone", zone, name, start, start + len(name))
        name = re.sub(r"[ -]?[^\W\d_]+$", "", name)
    return None


def masked(text: str) -> str:
    """Return a text with its values masked, except numbers."""
    for value in values_of(text):
        if value.kind != "number":
            text = text[: value.start] + "\ufffc" * (value.end - value.start) + text[value.end :]
    return text


def implied(text: str) -> frozenset[str]:
    """Return the stems of what the paths in a text name: a file or a directory."""
    names = [str(value.value).rpartition("/")[2] for value in values_of(text) if value.kind == "path"]
    return stems(" ".join("file" if "." in name else "directory" for name in names))


class Element(NamedTuple):
    """An XML element: attributes and inner text, which is escaped in `raw`."""

    attributes: dict[str, str]
    raw: str

    @property
    def text(self) -> str:
        return html.unescape(self.raw).strip()

    def get(self, name: str) -> str:
        return self.attributes.get(name, "")

    def children(self, tag: str) -> list["Element"]:
        """Return the elements with a tag. Data in prompts is escaped and can't contain elements."""
        found = re.finditer(rf"<{tag}((?:\s[^<>]*)?)>(.*?)</{tag}>", self.raw, re.DOTALL)
        pairs = [(re.findall(r"""([\w:.-]+)=("[^"]*"|'[^']*')""", match[1]), match[2]) for match in found]
        return [Element({key: html.unescape(text[1:-1]) for key, text in given}, raw) for given, raw in pairs]

    def child(self, tag: str) -> "Element":
        """Return the last element with a tag, or an empty one."""
        return next(iter(self.children(tag)[::-1]), Element({}, ""))


def parse_json(text: str) -> Any:
    """Return the JSON object or array in a text, else None."""
    try:
        return json.loads(text) if text.lstrip().startswith(("{", "[")) else None
    except (ValueError, RecursionError):
        return None


def leaves(value: object) -> Iterator[tuple[str, object]]:
    """Yield the scalars of a JSON value in order, each with the keys that lead to it."""
    stack: list[tuple[str, Any]] = [("", value)]
    while stack:
        path, item = stack.pop()
        if isinstance(item, dict | list):
            items = cast("dict[str, Any] | list[Any]", item)
            pairs = list(items.items()) if isinstance(items, dict) else [("", inner) for inner in items]
            stack += [(f"{path} {key}".strip(), inner) for key, inner in reversed(pairs)]
        else:
            yield path, item
