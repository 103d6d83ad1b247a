"""Instances of JSON schemas: small, always the same, and valid, or none.

Values that a schema itself names come first (`const`, `enum`, `default`, `examples`), then the smallest of its type.
Keywords that only forbid (`pattern`, `not`, `if`) are not solved but checked, so that some schemas get none.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import ceil, floor
from typing import Any, Final, cast
from urllib.parse import unquote

from mcp_gateway.schemas.validation import fits
from starling.core.json import Json, JsonObject, canonical, storable
from starling.core.json_schemas.compiled import CompiledSchema

_DEPTHS: Final = (2, 3, 4, 6, 8, 12)  # of schemas inside one another, the smallest first
_STEPS: Final = 2_000  # parts that are looked at and values that are tried, for one schema
_MOST_ITEMS: Final = 50
_MOST_CHARS: Final = 2_000
_LARGEST: Final = 100_000  # characters of a list as JSON
_FORMATS: Final[Mapping[str, str]] = {
    "date": "2026-01-01",
    "date-time": "2026-01-01T00:00:00Z",
    "time": "00:00:00Z",
    "duration": "PT1M",
    "email": "user@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}
_TYPE_OF_KEYWORD: Final = {
    "properties": "object",
    "required": "object",
    "additionalProperties": "object",
    "prefixItems": "array",
    "items": "array",
    "minItems": "array",
    "minimum": "number",
    "maximum": "number",
    "multipleOf": "number",
}
_COMBINING: Final = ("$ref", "allOf", "anyOf", "oneOf")
_DROPPED: Final = frozenset({"$schema", "$id", "$defs", "definitions"})  # of a part, which is checked inside the whole

type Schema = Mapping[str, Any]


class _TooLargeError(Exception):
    """A schema takes more steps than are worth it."""


def instance_of(schema: CompiledSchema) -> JsonObject | None:
    """Return an object that fits a schema, None where none is found.

    A schema that is endless, or that takes too many steps, has none.
    """
    try:
        instances = _Instances(schema, [_STEPS])
        for depth in _DEPTHS:
            found = storable(next(instances.of(schema.checked, depth), None))
            if isinstance(found, dict) and fits(schema, found):
                return cast("JsonObject", found)
    except (_TooLargeError, RecursionError, ArithmeticError):  # bounds can be too large to calculate with
        return None
    return None


@dataclass(frozen=True, slots=True)
class _Instances:
    """Finds instances of the parts of one schema. `steps` has one number: how many more may be taken."""

    root: CompiledSchema
    steps: list[int]

    def of(self, schema: object, depth: int) -> Iterator[Json]:
        """Yield valid instances of a part, those that it names itself first; none below `depth` levels."""
        if schema is False:
            return
        part = {key: value for key, value in _mapping(schema).items() if key not in _DROPPED}
        fits_part = self.root.part(part)
        for value in self._candidates(part, depth):
            if fits_part(value):
                yield value

    def _candidates(self, part: dict[str, Any], depth: int) -> Iterator[Json]:
        """Yield values that may fit: those that the part names, else of what it refers to, else of its type."""
        self._step()
        if depth < 0:
            return
        for value in self._suggested(part, depth):
            self._step()
            yield value

    def _step(self) -> None:
        self.steps[0] -= 1
        if self.steps[0] < 0:
            raise _TooLargeError

    def _suggested(self, part: dict[str, Any], depth: int) -> Iterator[Json]:
        if "const" in part:
            yield part["const"]
            return
        if "default" in part:
            yield part["default"]
        yield from _list(part.get("examples"))
        if "enum" in part:
            yield from _list(part["enum"])
            return
        combined = next((keyword for keyword in _COMBINING if keyword in part), None)
        if combined is None:
            yield from self._by_type(part, depth)
            return
        rest = {key: value for key, value in part.items() if key != combined}
        for other in self._additions(combined, part[combined]):
            yield from self._candidates(_merged(rest, other), depth - 1)

    def _additions(self, keyword: str, value: object) -> Iterator[Schema]:
        if keyword == "$ref":
            found = _resolved(self.root.checked, value)
            yield from [found] if found is not None else []
        elif keyword == "allOf":
            whole: dict[str, Any] = {}
            for item in _list(value):
                whole = _merged(whole, _mapping(item))
            yield whole
        else:
            yield from (_mapping(item) for item in _list(value) if item is not False)

    def _by_type(self, part: dict[str, Any], depth: int) -> Iterator[Json]:
        for kind in _types(part):
            match kind:
                case "object":
                    yield from self._objects(part, depth)
                case "array":
                    yield from self._arrays(part, depth)
                case "string":
                    yield from _strings(part)
                case "integer" | "number":
                    yield from _numbers(part)
                case "boolean":
                    yield from (True, False)
                case _:
                    yield None

    def _objects(self, part: Schema, depth: int) -> Iterator[Json]:
        """Yield the object of its required properties, then one with all that can be, which some schemas demand."""
        properties, other = _mapping(part.get("properties")), part.get("additionalProperties", True)
        values: dict[str, object] = {}
        for name in (name for name in _list(part.get("required")) if isinstance(name, str)):
            values[name] = next(self.of(properties.get(name, other), depth - 1), _MISSING)
            if values[name] is _MISSING:
                return
        yield cast("Json", dict(values))
        for name in [name for name in properties if name not in values]:
            values[name] = next(self.of(properties[name], depth - 1), _MISSING)
        yield cast("Json", {name: value for name, value in values.items() if value is not _MISSING})

    def _arrays(self, part: Schema, depth: int) -> Iterator[Json]:
        fewest = _whole(part.get("minItems"))
        if fewest > _MOST_ITEMS:
            return
        first = _list(part.get("prefixItems"))[: max(fewest, 0)]
        items = [next(self.of(schema, depth - 1), _MISSING) for schema in first]
        left = fewest - len(items)
        needed = part.get("contains")
        if needed is not None and left <= 0:
            left = max(1, _whole(part.get("minContains"), 1))
        if left > 0:
            items += self._items(part.get("items", True) if needed is None else needed, left, depth, part)
        if _MISSING not in items:
            yield cast("Json", items)

    def _items(self, schema: object, count: int, depth: int, part: Schema) -> Sequence[object]:
        """Return so many items: different ones where they have to be unique, else the first one repeated."""
        if part.get("uniqueItems") is not True:
            item = next(self.of(schema, depth - 1), _MISSING)
            if item is not _MISSING and len(canonical(item)) * count > _LARGEST:
                raise _TooLargeError
            return [item] * min(count, _MOST_ITEMS)
        different = {canonical(value): value for value in islice(self.of(schema, depth - 1), 2 * _MOST_ITEMS)}
        return [*different.values(), *[_MISSING] * count][:count]


_MISSING: Final = object()


def _strings(part: Schema) -> Iterator[str]:
    known = _FORMATS.get(str(part.get("format")))
    if known is not None:
        yield known
    fewest, most = _whole(part.get("minLength")), _whole(part.get("maxLength"), _MOST_CHARS)
    if fewest <= _MOST_CHARS:
        yield from (f"{text:{'.'}<{fewest}}"[:most] for text in ("text", "a", "0", "true", ""))
    yield from (f"text {number}"[:most] for number in range(2, _MOST_ITEMS))


def _numbers(part: Schema) -> Iterator[Json]:
    """Yield numbers near zero and near each bound, and multiples of what they have to be divisible by."""
    step = part.get("multipleOf", 1)
    bounds = [
        part[key] for key in ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum") if _is_number(part, key)
    ]
    for bound in (0, *bounds):
        for base in (floor(bound / step) * step, ceil(bound / step) * step):
            yield from (base, base + step, base - step)
        yield bound
    if len(bounds) > 1:
        yield sum(bounds) / len(bounds)
    yield from (number * step for number in range(2, _MOST_ITEMS))


def _is_number(part: Schema, key: str) -> bool:
    value = part.get(key)
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _types(part: Schema) -> Iterable[str]:
    """Return the types of a part; where it names none, the one that its keywords are about."""
    named = part.get("type")
    if isinstance(named, str):
        return (named,)
    if isinstance(named, Sequence):
        return sorted(map(str, cast("Sequence[object]", named)), key="null".__eq__)
    return (next((kind for keyword, kind in _TYPE_OF_KEYWORD.items() if keyword in part), "string"),)


def _merged(part: Schema, other: Schema) -> dict[str, Any]:
    """Return a part that demands what both demand, as far as that can be written down; the check finds the rest."""
    merged = {**part, **{key: value for key, value in other.items() if key not in _DROPPED}}
    properties = {**_mapping(part.get("properties")), **_mapping(other.get("properties"))}
    required = dict.fromkeys([*_list(part.get("required")), *_list(other.get("required"))])
    alternatives = [*_list(part.get("allOf")), *_list(other.get("allOf"))]
    found = {"properties": properties, "required": [*required], "allOf": alternatives}
    return merged | {key: value for key, value in found.items() if value}


def _resolved(root: Schema, reference: object) -> Schema | None:
    """Return what a reference inside the document points at, None for any other."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return None
    found: object = root
    for token in reference[2:].split("/") if len(reference) > 1 else []:
        name = unquote(token).replace("~1", "/").replace("~0", "~")
        found = _mapping(found).get(name)
    return cast("Schema", found) if isinstance(found, Mapping) else None


def _mapping(value: object) -> Schema:
    return cast("Schema", value) if isinstance(value, Mapping) else {}


def _list(value: object) -> Sequence[Any]:
    return cast("Sequence[Any]", value) if isinstance(value, (list, tuple)) else ()


def _whole(value: object, default: int = 0) -> int:
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else default
