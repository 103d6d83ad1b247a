"""The parts of a JSON schema that are schemas themselves, by what they apply to."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")

_SAME_VALUE: Final = ("not", "if", "then", "else", "allOf", "anyOf", "oneOf", "dependentSchemas", "dependencies")
_ONE_OF_CHILDREN: Final = ("properties", "items", "prefixItems", "additionalItems", "additionalProperties")
_FURTHER_OF_CHILDREN: Final = (
    *("patternProperties", "contains", "propertyNames", "unevaluatedItems", "unevaluatedProperties"),
)
_UNUSED: Final = ("$defs", "definitions")
_MAPS: Final = frozenset({"properties", "patternProperties", "dependentSchemas", "dependencies", *_UNUSED})

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
