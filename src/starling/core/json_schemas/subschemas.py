"""Parts of a JSON schema that are schemas themselves, and what references inside the same document point at."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast
from urllib.parse import unquote

REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")

_SAME_VALUE: Final = ("not", "if", "then", "else", "allOf", "anyOf", "oneOf", "dependentSchemas", "dependencies")
_ONE_OF_CHILDREN: Final = ("properties", "items", "prefixItems", "additionalItems", "additionalProperties")
_FURTHER_OF_CHILDREN: Final = (
    *("patternProperties", "contains", "propertyNames", "unevaluatedItems", "unevaluatedProperties"),
)
_UNUSED: Final = ("$defs", "definitions")
_MAPS: Final = frozenset({"properties", "patternProperties", "dependentSchemas", "dependencies", *_UNUSED})

_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,8}")
ABSENT: Final = object()

type Schema = Mapping[str, Any]


def of_same_value(schema: Schema) -> Iterator[Schema]:
    """Yield the parts that are checked against the same value."""
    yield from _parts(schema, _SAME_VALUE)


def of_children(schema: Schema) -> tuple[list[Schema], list[Schema]]:
    """Return the parts for children: of the first at most one applies to a child, of the second all may."""
    return list(_parts(schema, _ONE_OF_CHILDREN)), list(_parts(schema, _FURTHER_OF_CHILDREN))


def all_of(schema: Schema) -> Iterator[Schema]:
    """Yield all parts, also definitions."""
    yield from _parts(schema, (*_SAME_VALUE, *_ONE_OF_CHILDREN, *_FURTHER_OF_CHILDREN, *_UNUSED))


def with_parts(schema: Schema) -> Iterator[Schema]:
    """Yield a schema and all parts of it, at any depth."""
    stack = [schema]
    while stack:
        part = stack.pop()
        yield part
        stack += all_of(part)


def replaced(schema: Schema, parts: Mapping[int, Schema]) -> dict[str, Any]:
    """Return the schema with its parts, given by their `id`, replaced."""

    def new(value: Any) -> object:
        return parts.get(id(value), value)

    found = dict(schema)
    for keyword in (*_SAME_VALUE, *_ONE_OF_CHILDREN, *_FURTHER_OF_CHILDREN, *_UNUSED):
        value: object = schema.get(keyword)
        if isinstance(value, Mapping) and keyword in _MAPS:
            found[keyword] = {name: new(part) for name, part in cast("Schema", value).items()}
        elif isinstance(value, list):
            found[keyword] = [new(part) for part in cast("list[object]", value)]
        elif value is not None:
            found[keyword] = new(value)
    return found


def with_numeric_bounds(schema: Schema) -> Schema:
    """Return a schema of draft 4 with numbers for boolean `exclusiveMinimum` and `exclusiveMaximum`, others unchanged.

    Model endpoints, which read newer drafts, refuse every request that has such a tool.
    """
    return _numeric(schema) if "json-schema.org/draft-04/" in str(schema.get("$schema")) else schema


def _numeric(schema: Schema) -> Schema:
    found = replaced(schema, {id(part): _numeric(part) for part in all_of(schema)})
    for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(found.get(exclusive), bool) and found.pop(exclusive) and bound in found:
            found[exclusive] = found.pop(bound)
    return found


def _parts(schema: Schema, keywords: Sequence[str]) -> Iterator[Schema]:
    for keyword in keywords:
        value = schema.get(keyword)
        if isinstance(value, Mapping):
            found = cast("Schema", value)
            yield from _schemas(found.values()) if keyword in _MAPS else (found,)
        elif isinstance(value, list):
            yield from _schemas(cast("list[object]", value))


def _schemas(values: Any) -> Iterator[Schema]:
    return (cast("Schema", value) for value in values if isinstance(value, Mapping))


UNRESOLVED: Final = "refers to something that can't be resolved"

_META_SCHEMAS: Final = ("http://json-schema.org/", "https://json-schema.org/")  # known to the validator, and small
_ANYTHING: Final[Schema] = {}
_SHOWN_CHARS: Final = 100


class Targets:
    """The targets of references inside one document."""

    def __init__(self, root: Schema) -> None:
        self._named: dict[str, Schema] = {"": root}
        for part in with_parts(root):
            self._named |= dict.fromkeys(_names(part), part)

    def get(self, reference: object) -> Schema | None:
        """Return what a reference points at, None for anything outside of the document."""
        if not isinstance(reference, str):
            return None
        if reference.startswith(_META_SCHEMAS):
            return _ANYTHING
        document, _, fragment = reference.partition("#")
        base = self._named.get(document)
        if base is not None and fragment.startswith("/"):
            return at_pointer(base, fragment)
        return self._named.get(f"#{fragment}") if fragment else base


def reference_fault(schema: Schema) -> str:
    """Return which reference of a schema leaves the document, or leads to itself; empty if none does."""
    targets = Targets(schema)
    for start in with_parts(schema):
        part, seen = start, list[Schema]()
        while isinstance(reference := part.get("$ref"), str):
            if any(part is one for one in seen):
                return f"refers to itself without end: {reference[:_SHOWN_CHARS]}"
            seen.append(part)
            target = targets.get(reference)
            if target is None and not reference.startswith("#"):
                return f"refers to another document: {reference[:_SHOWN_CHARS]}"
            part = target or _ANYTHING
    return ""


def at_pointer(base: Schema, pointer: str) -> Schema | None:
    """Return what a JSON pointer points at; None unless that is an object. `true` and `false` count as {}."""
    found = value_at(base, map(unquote, pointer.split("/")[1:]))
    return _ANYTHING if isinstance(found, bool) else cast("Schema", found) if isinstance(found, Mapping) else None


def value_at(value: object, tokens: Iterable[str]) -> object:
    """Return what the tokens of a JSON pointer (RFC 6901) lead to in a JSON value, ABSENT if they lead nowhere."""
    for token in tokens:
        name = token.replace("~1", "/").replace("~0", "~")
        if isinstance(value, Mapping):
            value = cast("Schema", value).get(name, ABSENT)
        elif isinstance(value, list) and _INDEX.fullmatch(name):
            items = cast("list[object]", value)
            value = items[int(name)] if int(name) < len(items) else ABSENT
        else:
            return ABSENT
    return value


def _names(part: Schema) -> Iterator[str]:
    for keyword in ("$id", "id"):
        if isinstance(name := part.get(keyword), str):
            yield name.removesuffix("#") if not name.startswith("#") else name
    for keyword in ("$anchor", "$dynamicAnchor"):
        if isinstance(name := part.get(keyword), str):
            yield f"#{name}"
