"""JSON as the platform stores, compares and hashes it, and as it reads values of any type."""

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, cast

type Json = bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"] | None
type JsonObject = Mapping[str, Json]

# Postgres refuses NUL in text and jsonb; UTF-8 has no lone surrogates.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_LARGEST_INTEGER = 2**63
# In the JSON text of a value: what may be one of those, or too long an integer. To begin with a set makes it fast.
_SUSPECT = re.compile(r"[\\0-9](?:u(?:0000|d[89a-f])|[0-9]{18})")

_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\Z)|[\[{]|[\]}]', re.DOTALL)

_WITH_EXPONENT: Final = 1e16  # floats from here on are written with one, and read back as integers
_INTEGERS: Final = range(-_LARGEST_INTEGER, _LARGEST_INTEGER)  # that are kept as such

_SHOWN_CHARS: Final = 60
_SHOWN_BITS: Final = 256

_ENCODER = json.JSONEncoder(allow_nan=False)


class RepeatedNameError(ValueError):
    """A name stands twice in one object: readers of JSON disagree which of its values counts."""


def without_repeated_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of its members, as `object_pairs_hook` of a parser. Raises RepeatedNameError."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise RepeatedNameError(f"the name {twice!r} is used twice in one object")
    return found


def canonical(value: object) -> str:
    """Return the one text that equal JSON values share: sorted keys, no white space."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def comparable(value: object) -> str:
    """Return the one text of all JSON values that are equal, whichever way their numbers are written: `1` is `1.0`."""
    return canonical(json.loads(canonical(value), parse_float=_shortest_number))


def _shortest_number(text: str) -> float:
    number = float(text)
    return int(number) if number.is_integer() else number


def digest(value: object) -> str:
    """Return the SHA-256 of the canonical text of a JSON value, as 64 hex digits."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def storable_text(text: str) -> str:
    """Return `text` with what Postgres or UTF-8 can't hold replaced by U+FFFD."""
    if text.isascii() and "\0" not in text:  # most are, and this is fifty times as quick
        return text
    return _UNSTORABLE.sub("�", text)


def storable(value: object) -> Json:
    """Return `value` as JSON that Postgres accepts and every reader can parse.

    NUL and lone surrogates become U+FFFD; NaN, infinities and integers beyond 64 bits become text;
    what isn't JSON becomes its text.
    """
    return cast("Json", value) if _is_storable(value) else _made_storable(value)


def unsendable(value: object) -> str:
    """Return what of a value JSON can't carry unchanged to any reader, empty if it can carry all.

    That is NUL and half of a surrogate pair in a text, and a number that neither 64 bits nor a double hold exactly.
    """
    return "" if _is_storable(value) else _unsendable(value)


def is_64_bit(number: int) -> bool:
    """Whether a signed integer of 64 bits holds a number."""
    return number in _INTEGERS


def _unsendable(value: object) -> str:
    match value:
        case None | bool():
            return ""
        case str():
            found = _UNSTORABLE.search(value)
            what = "half of a surrogate pair" if found and found[0] != "\0" else "the character NUL"
            return f"{what} in the text {value[:_SHOWN_CHARS]!a}" if found else ""
        case int() | float():
            return "" if _is_exact(value) else f"the number {_shown_number(value)}, which a double doesn't hold"
        case Mapping():
            members = cast("Mapping[object, object]", value)
            return next(filter(None, (_unsendable(part) for item in members.items() for part in item)), "")
        case Sequence() if not isinstance(value, (bytes, bytearray)):
            return next(filter(None, (_unsendable(item) for item in cast("Sequence[object]", value))), "")
        case _:
            return f"a value of the type {type(value).__name__}, which JSON doesn't have"


def _is_exact(number: float) -> bool:
    if isinstance(number, float):
        return math.isfinite(number)
    try:
        return number in _INTEGERS or int(float(number)) == number
    except OverflowError:
        return False


def _shown_number(number: float) -> str:
    if isinstance(number, int) and number.bit_length() > _SHOWN_BITS:
        return f"of {number.bit_length():,} bits"
    return str(number)


def as_read(value: Json) -> Json:
    """Return storable JSON with its numbers as they are whether or not they have been in a `jsonb` column."""
    match value:
        case bool() | str() | None:
            return value
        case float() if abs(value) >= _WITH_EXPONENT:
            exact = int(Decimal(repr(value)))
            return exact if exact in _INTEGERS else value
        case float():
            return value + 0.0  # -0.0 comes back as 0.0
        case int():
            return value if value in _INTEGERS else float(value)  # it was one before
        case Mapping():
            return {name: as_read(item) for name, item in value.items()}
        case _:
            return [as_read(item) for item in value]


def _is_storable(value: object) -> bool:
    """Whether a value can be stored as it stands; in doubt it can't."""
    try:
        return not _SUSPECT.search(_ENCODER.encode(value))
    except (TypeError, ValueError):  # no JSON
        return False


def _made_storable(value: object) -> Json:
    match value:
        case None | bool():
            return value
        case str():
            return storable_text(value)
        case int():
            return value if -_LARGEST_INTEGER <= value < _LARGEST_INTEGER else str(value)
        case float():
            return value if math.isfinite(value) else str(value)
        case Mapping():
            return {storable_text(str(key)): _made_storable(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        case Sequence() if not isinstance(value, (bytes, bytearray)):
            return [_made_storable(item) for item in value]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        case _:
            return storable_text(str(value))


def depth_of(text: str) -> int:
    """Return how many levels of objects and arrays JSON text has, also where its end is missing."""
    depth = deepest = 0
    for token in _TOKEN.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token.group(), 0)
        deepest = max(deepest, depth)
    return deepest


def as_object(value: object) -> dict[str, Any]:
    """Return `value` if it is an object, else an empty object."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_items(value: object) -> list[Any]:
    """Return `value` if it is an array, else an empty list."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def as_text(value: object) -> str:
    """Return `value` if it is a string, else an empty string."""
    return value if isinstance(value, str) else ""


def as_count(value: object) -> int:
    """Return `value` if it is a non-negative integer, else zero."""
    return value if isinstance(value, int) and value >= 0 else 0


def strings_in(value: Json) -> Iterator[str]:
    """Yield the strings of a JSON value, keys included, in the order in which `with_strings` takes them."""
    match value:
        case str():
            yield value
        case dict():
            for key, item in value.items():
                yield key
                yield from strings_in(item)
        case list() | tuple():
            for item in value:
                yield from strings_in(item)
        case _:
            pass


def with_strings(value: Json, strings: Iterator[str]) -> Json:
    """Return a JSON value with other strings in place of its own."""
    match value:
        case str():
            return next(strings)
        case dict():
            return {next(strings): with_strings(item, strings) for item in value.values()}
        case list() | tuple():
            return [with_strings(item, strings) for item in value]
        case _:
            return value
