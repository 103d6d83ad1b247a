"""JSON documents that models write: between prose, in fences, in the syntax of other languages, or without their end.

Nothing is made up: what was repaired counts only if it fits the schema, and of a document whose end is missing only
the members that are complete count. A document type names in `NEEDED_IF_CUT` those that must be among them, in
`MUST_AGREE` those in which nothing else in the answer may contradict it, in `WHOLE_ANSWERS` what a word alone means.
"""

import ast
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import json_repair
import orjson
from pydantic import BaseModel, ValidationError

from starling.core.json import storable

_VALUE: Final = r"""[\s"'*_”]*+[:=][\s"'*_“]*+(\w++)"""  # of a member, after its name
_UNREAD = 8  # braces of an answer that begin no object, before the rest is not looked at
_REPAIR_CHARS = 200_000
_SHOWN_ERRORS = 8
_QUOTES: Final = {'"': '"', "'": "'", "“": "”“", "„": "“”", "‘": "’‘"}  # what ends a string that begins so
_BEFORE_VALUE: Final = "{[,:("
_AFTER_STRING: Final = re.compile(r"\s*(?:[,:}\])/#]|\Z)")
_CLOSED_VALUE: Final = "\"'“„‘}]"
_LITERALS: Final = {"None": "null", "True": "true", "False": "false", "undefined": "null"}
_BARE: Final = re.compile(r'(?<!\\)"|[\n\r\t]')
_ESCAPES: Final = {'"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_WHOLE_FENCE: Final = re.compile(r"```\w*[ \t]*\n(.*?)\n?[ \t]*```", re.DOTALL)
_WORD: Final = re.compile(r"[A-Za-z_]+")
_UNICODE_ESCAPE: Final = re.compile(r"\\u([0-9a-fA-F]{4})")
_NO_LETTER: Final = re.compile(r'\\[bfnrt"/\\]|[\W_]+')
_COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?\*/|#[^\n]*", re.DOTALL)
_AROUND_WORD: Final = " \t\n*_.!\"'`“”"
_WRAPPERS: Final = ("response", "result", "output", "answer", "json", "arguments", "parameters")


type _Reading[D] = tuple[D | None, Sequence[str]]
"""The document of an answer, or None and what is wrong with it."""


def read_document[D: BaseModel](text: str, kind: type[D]) -> _Reading[D]:
    """Return the first object in `text` that fits `kind`, unless the rest of the text contradicts it, and its errors.

    Without one, the errors are those of the first object that is JSON. Characters that Postgres can't store are
    replaced.
    """
    if (value := getattr(kind, "WHOLE_ANSWERS", {}).get(text.strip(_AROUND_WORD).casefold())) is not None:
        return kind.model_validate(value), ()
    document, errors = _first_fit((value for written in _objects(text) for value in written.readings), kind)
    if document is None:
        document, wrong = _first_fit(_cut_object(text, kind), kind)
        if document is None:
            return None, errors or wrong or [_without_object(text)]
    if _agreed_members(kind) and _is_contradicted(document, text):
        return None, ["document: the answer has several that contradict each other"]
    return document, ()


def _agreed_members(kind: type[BaseModel]) -> Sequence[str]:
    """Return the members in which all documents of this type in one answer have to be equal."""
    return getattr(kind, "MUST_AGREE", ())


def _is_contradicted(found: BaseModel, text: str) -> bool:
    """Whether another document of this text, one that is nearly a document, or the text around contradicts `found`."""
    around, after = "", 0
    for written in _objects(text):
        own = text[written.start : written.end]
        document, _ = _first_fit(written.readings, type(found))
        if document is None:  # a part of the text around, unless a value alone makes it no document
            if any(len(value.keys() & type(found).model_fields) > 1 for value in written.readings):
                return True
            continue
        around, after = f"{around}{text[after : written.start]}\n", written.end
        members = _agreed_members(type(found))
        if _has_two_values(own, document) or any(getattr(found, it) != getattr(document, it) for it in members):
            return True
    return any(_names_other_value(found, name, around + text[after:]) for name in _agreed_members(type(found)))


def _has_two_values(text: str, found: BaseModel) -> bool:
    """Whether the text of a document has a member twice, with values that contradict each other."""
    names = [name for name in _agreed_members(type(found)) if text.count(name) > 1]
    repeated = False

    def object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal repeated
        value = dict(pairs)
        repeated = repeated or any(key in names and value[key] != own for key, own in pairs)
        return value

    if not names:
        return False
    try:
        json.loads(text, object_pairs_hook=object_of)
    except (ValueError, RecursionError):  # it was read in another syntax
        return any(_names_other_value(found, name, text) for name in names)
    return repeated


def _names_other_value(found: BaseModel, name: str, text: str) -> bool:
    """Whether a text says another value for a member, by its name or that of the document, in words or as JSON."""
    for value in re.findall(rf"\b(?:{name}|{type(found).__name__}){_VALUE}", text, re.IGNORECASE):
        try:
            other = getattr(type(found).model_validate({name: value}), name)
        except ValidationError:
            continue
        if other != getattr(found, name):
            return True
    return False


@dataclass(frozen=True, slots=True)
class _Written:
    """Where an object stands in a text, and the objects that it can be read as, the most literal one first."""

    start: int
    end: int
    readings: Sequence[dict[str, Any]]


def _objects(text: str) -> Iterator[_Written]:
    """Yield each complete object in `text`, outermost only, in order."""
    whole = loads_object(text.strip())
    if whole is not None:
        yield _Written(0, len(text), [whole])
        return
    at, unread = 0, 0
    while unread < _UNREAD:
        at = text.find("{", at)
        if at < 0:
            return
        end = _end_of_object(text, at)[0]
        readings = [*_readings(text[at:end])] if end is not None else []
        if end is not None and readings:
            yield _Written(at, end, readings)
            at = end
        else:  # a brace of the prose, or an object without an end
            at, unread = at + 1, unread + 1


def loads_object(text: str | bytes) -> dict[str, Any] | None:
    """Return the JSON object in `text`, or None."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def whole_object(text: str) -> dict[str, Any] | None:
    """Return the object that `text` is, in a code fence or not, or None."""
    inner = without_fence(text)
    if (value := loads_object(inner)) is not None:
        return value
    is_whole = inner.startswith("{") and _end_of_object(inner, 0)[0] == len(inner)  # else it was cut off in a string
    return next(_readings(inner), None) if is_whole else None


def last_object(text: str) -> str:
    """Return the object that ends `text`, in a code fence or not, as it is written; empty if none does."""
    inner = text.strip().removesuffix("```").rstrip()
    return next((inner[found.start :] for found in _objects(inner) if found.end == len(inner)), "")


def without_fence(text: str) -> str:
    """Return the text inside of the Markdown code fence that it is, or the text itself."""
    stripped = text.strip()
    fenced = _WHOLE_FENCE.fullmatch(stripped)
    return fenced.group(1).strip() if fenced else stripped


def _readings(text: str) -> Iterator[dict[str, Any]]:
    """Yield the objects that `text` can be read as, the most literal one first; JSON can be read in one way only."""
    for read in (loads_object, _python_object):
        if (value := read(text)) is not None:
            yield value
            return
    for candidate in (_with_json_syntax(text), text):
        if value := loads_object(candidate) or _repaired(candidate):
            yield value


def _first_fit[D: BaseModel](readings: Iterable[dict[str, Any]], kind: type[D]) -> _Reading[D]:
    """Return the first document that a reading is, or wraps in a single member; else the errors of the first one."""
    errors: Sequence[str] = ()
    for candidate in (one for value in readings for one in (value, *_wrapped(value))):
        try:
            document = kind.model_validate(storable(candidate))
        except ValidationError as error:
            errors = errors or described(error)
            continue
        if document.model_fields_set:
            return document, ()
        errors = errors or [f"the object has none of the members {', '.join(kind.model_fields)}"]
    return None, errors


def _wrapped(value: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if len(value) == 1:
        [(name, inner)] = value.items()
        if isinstance(inner, dict) and name.casefold() in _WRAPPERS:
            yield cast("dict[str, Any]", inner)


def described(error: ValidationError) -> list[str]:
    """Return the errors of a document, one a line, without its values."""
    return [
        f"{'.'.join(map(str, item['loc'])) or 'document'}: {item['msg']}"
        for item in error.errors(include_url=False, include_input=False)[:_SHOWN_ERRORS]
    ]


def _without_object(text: str) -> str:
    if not text.strip():
        return "document: the answer is empty"
    return f"document: there is no {'complete ' if '{' in text else ''}JSON object"


def _end_of_object(text: str, start: int) -> tuple[int | None, Sequence[int]]:
    """Return where the object from `start` ends, None if it has no end, and where its members end."""
    depth, at, before, ends = 0, start, "{", list[int]()
    while at < len(text):
        sign = text[at]
        if sign in _QUOTES and before in _BEFORE_VALUE:
            at, before = _end_of_string(text, at), sign
            if at < 0:
                return None, ends
            continue
        if (sign in "/#") and (comment := _COMMENT.match(text, at)):
            at = comment.end()
            continue
        if sign in "{[":
            depth += 1
        elif sign in "}]":
            depth -= 1
            if depth == 0:
                return at + 1, ends
        elif sign == "," and depth == 1:
            ends.append(at)
        before = before if sign.isspace() else sign
        at += 1
    if depth == 1 and before in _CLOSED_VALUE:
        ends.append(at)
    return None, ends


def _end_of_string(text: str, start: int) -> int:
    """Return where the string from `start` ends, -1 if nowhere: at a quote before a comma, colon or bracket."""
    quote, at = text[start], start + 1
    while at < len(text):
        if text[at] == "\\":
            at += 2
            continue
        if text[at] in _QUOTES[quote] and _AFTER_STRING.match(text, at + 1):
            return at + 1
        at += 1
    return -1


def _python_object(text: str) -> dict[str, Any] | None:
    """Return the object of a Python literal, or None."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return None
    if not isinstance(value, dict):
        return None
    try:
        return loads_object(orjson.dumps(value))  # None for what JSON has no form for
    except TypeError:
        return None


def _with_json_syntax(text: str) -> str:
    """Return `text` without comments, with its strings and the words of Python and JavaScript in JSON's form."""
    parts, at, before = list[str](), 0, "{"
    while at < len(text):
        sign = text[at]
        if sign in _QUOTES and before in _BEFORE_VALUE and (end := _end_of_string(text, at)) > 0:
            inner = text[at + 1 : end - 1].replace("\\'", "'")
            escaped = _BARE.sub(lambda found: _ESCAPES[found.group()], inner)  # quotes and line breaks need no escape
            parts.append(f'"{escaped}"')
        elif word := _WORD.match(text, at):
            end = word.end()
            parts.append(_LITERALS.get(word.group(), word.group()))
        elif (sign in "/#") and (comment := _COMMENT.match(text, at)):
            at = comment.end()
            continue
        else:
            end = at + 1
            parts.append(sign)
        before = before if sign.isspace() else sign
        at = end
    return "".join(parts)


def _repaired(text: str) -> dict[str, Any] | None:
    if len(text) > _REPAIR_CHARS:
        return None
    try:
        value = json_repair.loads(text, skip_json_loads=True, strict=True)
    except (ValueError, RecursionError):
        return None
    if not (isinstance(value, dict) and value):
        return None
    # It needs every word of the text: a quote within a string may have ended it too early.
    return value if _letters(json.dumps(value, ensure_ascii=False)) == _letters(text) else None


def _letters(text: str) -> str:
    decoded = _UNICODE_ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)
    return _NO_LETTER.sub("", decoded)


def _cut_object(text: str, kind: type[BaseModel]) -> Sequence[dict[str, Any]]:
    """Return the readings of the first object without an end, if the members that `kind` needs are complete."""
    start = text.find("{")
    if start < 0 or len(text) > _REPAIR_CHARS:
        return ()
    end, member_ends = _end_of_object(text, start)
    if end is not None or not member_ends:
        return ()
    needed: Sequence[str] = getattr(kind, "NEEDED_IF_CUT", ())
    closed = f"{text[start : member_ends[-1]]}}}"
    return [value for value in _readings(closed) if all(name in value for name in needed)]
