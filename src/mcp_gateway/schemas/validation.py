"""JSON schemas of tools: compiled once, checked with bounded costs; references to other documents are never fetched."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from jsonschema_rs import ValidationError, ValidationErrorKind

from starling.core.json import Json
from starling.core.json_schemas.compiled import CompiledSchema, UncheckableError, compiled, fault_of, is_unresolved
from starling.core.json_schemas.subschemas import UNRESOLVED, Schema, at_pointer

_MOST: Final = 4_096
_SHOWN: Final = 5
_CHARS: Final = 300  # of one fault


class Validators:
    """Compiled schemas by a key that changes with the schema."""

    def __init__(self) -> None:
        self._compiled: dict[tuple[str, str], CompiledSchema] = {}

    def get(self, pin: str, part: str, schema: Mapping[str, Any]) -> CompiledSchema:
        """Return one part (`input`, `output`) of the definition with this hash, compiled."""
        found = self._compiled.get((pin, part))
        if found is None:
            if len(self._compiled) >= _MOST:
                self._compiled.clear()
            found = self._compiled[pin, part] = compiled(schema)
        return found

    async def load(self, pin: str, part: str, schema: Mapping[str, Any]) -> CompiledSchema:
        """Return what `get` returns; compile it in a thread, because large schemas take a while."""
        if (pin, part) not in self._compiled:
            await asyncio.to_thread(self.get, pin, part, schema)
        return self.get(pin, part, schema)


def schema_fault(schema: object) -> str | None:
    """Return why this can't be the schema of a JSON object, None where it can."""
    if not isinstance(schema, dict):
        return "is not an object"
    if schema.get("type", "object") != "object":
        return "doesn't describe an object"
    return fault_of(cast("dict[str, Any]", schema))


def faults(schema: CompiledSchema, value: Json, root: str) -> list[str]:
    """Return what is wrong with a value, one line a fault, in words that its author can act on.

    A schema that refers to something outside of itself, or that takes too long to check, is a fault too.
    """
    try:
        found = schema.errors(value)
    except UncheckableError as error:
        return [f"the tool's schema {error}"]
    if found is None:
        return [f"{root}: it doesn't fit the schema; it is too large to list its faults"]
    if any(map(is_unresolved, found)):
        return [f"the tool's schema {UNRESOLVED}"]
    found.sort(key=lambda error: len(error.instance_path))
    lines: list[str] = []
    for error in found[:_SHOWN]:
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.instance_path)
        lines.append(f"{root}{path}: {_message(error)[:_CHARS]}{_expected(error, schema.document)}")
    return lines


def _message(error: ValidationError) -> str:
    match error.kind:
        case ValidationErrorKind.Required(property=name):
            return f"{name!r} is a required property"
        case ValidationErrorKind.Type(types=types):
            return f"{_shown(error)} is not of type {', '.join(map(repr, types))}"
        case ValidationErrorKind.Enum(options=options):
            return f"{_shown(error)} is not one of {options!r}"
        case ValidationErrorKind.Pattern(pattern=pattern):
            return f"{_shown(error)} does not match {pattern!r}"
        case _:
            return (error.message.splitlines() or [""])[0]


def _shown(error: ValidationError) -> str:
    text = repr(error.instance)
    return text if len(text) <= _CHARS // 2 else f"{text[: _CHARS // 2]} …"


def _expected(error: ValidationError, document: Schema) -> str:
    """Return the schema's type and description of the missing or wrong value."""
    part = _part_at(document, error.evaluation_path[:-1])
    if isinstance(error.kind, ValidationErrorKind.Required):
        name = error.kind.property
        properties = part.get("properties")
        known = _schema(_schema(properties).get(name))
        words = filter(None, (str(known.get("type", "")), str(known.get("description", ""))[:200]))
        return f" ({name}: {', '.join(words) or 'any value'})"
    about = part.get("description")
    return f" ({about[:200]})" if isinstance(about, str) else ""


def _part_at(document: Schema, path: Sequence[str | int]) -> Schema:
    """Return the part of a schema at a path of keywords, in which references are followed."""
    part: object = document
    for token in path:
        reference = str(_schema(part).get("$ref"))
        if token == "$ref" and reference.startswith("#"):  # noqa: S105 - a keyword
            part = at_pointer(document, reference.removeprefix("#"))
        elif isinstance(token, int):
            items = cast("Sequence[object]", part) if isinstance(part, list) else ()
            part = items[token] if token < len(items) else None
        else:
            part = _schema(part).get(token)
    return _schema(part)


def _schema(value: object) -> Schema:
    return cast("Schema", value) if isinstance(value, Mapping) else {}
