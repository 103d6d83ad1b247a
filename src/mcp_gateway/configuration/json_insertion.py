"""Adds members to the objects of a JSON text and keeps the rest of the text, comments included.

Libraries for such files write the whole document anew: what a person wrote would lose its comments or its layout.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from mcp_gateway.configuration.json_comments import with_commas, without_comments

_DECODER: Final = json.JSONDecoder()
_INDENT: Final = re.compile(r"\n([ \t]+)\S")
_DEFAULT_INDENT: Final = "  "

type Insertion = tuple[int, str]


def with_members(text: str, wanted: Mapping[str, Any]) -> str:
    """Return `text` with the members of `wanted` added; where both have an object, its members are added to it.

    Raises ValueError where `text` has another value for a member, or is not an object.
    """
    blanked = without_comments(text)
    start = _next(blanked, 0)
    if blanked[start : start + 1] != "{":
        raise ValueError("the file does not contain an object")
    for place, added in sorted(_insertions(text, blanked, start, wanted), key=lambda one: one[0], reverse=True):
        text = text[:place] + added + text[place:]
    return text


@dataclass(frozen=True, slots=True)
class _Object:
    """Places in a text: of the opening and the closing brace, and of the names and values (start, end) in between."""

    start: int
    end: int
    names: Mapping[str, int]
    values: Mapping[str, tuple[int, int]]

    @classmethod
    def at(cls, blanked: str, start: int) -> "_Object":
        names: dict[str, int] = {}
        values: dict[str, tuple[int, int]] = {}
        place = _next(blanked, start + 1)
        while blanked[place] != "}":
            name, end = _DECODER.raw_decode(blanked, place)
            value = _next(blanked, _next(blanked, end) + len(":"))
            _, end = _DECODER.raw_decode(blanked, value)
            names[name], values[name] = place, (value, end)
            place = _next(blanked, end)
            if blanked[place] == ",":
                place = _next(blanked, place + 1)
        return cls(start, place, names, values)


def _insertions(text: str, blanked: str, start: int, wanted: Mapping[str, Any]) -> Iterator[Insertion]:
    known = _Object.at(blanked, start)
    added: dict[str, Any] = {}
    for name, value in wanted.items():
        if name not in known.values:
            added[name] = value
        elif isinstance(value, Mapping) and blanked[known.values[name][0]] == "{":
            yield from _insertions(text, blanked, known.values[name][0], cast("Mapping[str, Any]", value))
        elif _DECODER.raw_decode(blanked, known.values[name][0])[0] != value:
            raise ValueError(f"{name!r} has another value already")
    if added:
        yield from _members(text, known, added)


def _members(text: str, known: _Object, added: Mapping[str, Any]) -> Iterator[Insertion]:
    """Yield what adds members at the end of an object, after the comments that stand there."""
    last = max((end for _, end in known.values.values()), default=0)
    comma = "," if last and "," not in with_commas(text)[last : known.end] else ""
    place = len(text[: known.end].rstrip())
    if "\n" in text[known.start : known.end]:
        unit, own = _unit(text), _indent(text, known)
        line = ("\r\n" if "\r\n" in text else "\n") + own
        members = [f"{json.dumps(name)}: {_lines(value, unit, line)}" for name, value in added.items()]
        written = "".join(f"{line}{member}," for member in members).removesuffix(",")
    else:
        members = [f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in added.items()]
        written = " " * bool(last) + ", ".join(members)
    if place == last:
        yield place, comma + written
        return
    if comma:
        yield last, comma
    yield place, written


def _lines(value: Any, unit: str, line: str) -> str:
    return json.dumps(value, indent=unit, ensure_ascii=False).replace("\n", line)


def _indent(text: str, known: _Object) -> str:
    """Return the indentation of the members of an object that spans several lines."""
    if not known.names:
        return _leading(text, known.end) + _unit(text)
    return _leading(text, max(known.names.values()))


def _leading(text: str, place: int) -> str:
    line = text[text.rfind("\n", 0, place) + 1 : place]
    return line[: len(line) - len(line.lstrip())]


def _unit(text: str) -> str:
    found = _INDENT.search(text)
    return found[1] if found else _DEFAULT_INDENT


def _next(blanked: str, place: int) -> int:
    """Return the place of the next character that isn't white space, or the end."""
    while place < len(blanked) and blanked[place].isspace():
        place += 1
    return place
