"""JSON schemas of others, compiled: patterns take linear time, nothing is fetched, costs are bounded.

The patterns of the validator's linear engine have no look-around and no back references: such patterns, which only the
server's own language may understand, are left to the server.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final, cast

import jsonschema_rs
import orjson

from starling.core.json import canonical, depth_of
from starling.core.json_schemas.subschemas import (
    REFERENCES,
    UNRESOLVED,
    Schema,
    Targets,
    all_of,
    of_children,
    of_same_value,
    replaced,
    with_parts,
)

_PATTERNS: Final = jsonschema_rs.RegexOptions(size_limit=2**18, dfa_size_limit=2**20)  # bytes: up to 1 ms a pattern
_MOST_PATTERNS: Final = 50  # of one schema; further ones are left to the server
_MOST_CHARS: Final = 2**17  # of a schema
_MOST_LEVELS: Final = 64  # of a schema
_MOST_EVALUATIONS: Final = 4_000_000  # of a check: about 100 ms
_MOST_LISTED: Final = 6_000  # evaluations up to which all faults are listed: one takes 25 microseconds
_COMBINING: Final = ("anyOf", "oneOf", "not", "if")
_DIALECTS: Final = (
    *(f"http://json-schema.org/draft-{number}/schema" for number in ("04", "06", "07")),
    *(f"https://json-schema.org/draft/{date}/schema" for date in ("2019-09", "2020-12")),
)
_TOO_DEEP: Final = "is nested too deeply"
_UNRESOLVED: Final[Schema] = {
    "not": {},
    "const": f"\N{REPLACEMENT CHARACTER} {UNRESOLVED}",
}  # fits nothing; stands for such a reference
_MOST_PARTS: Final = 3_000
_MOST_STEPS: Final = 200_000  # for all levels of a value together
_LARGEST: Final = 10**9


class UnboundedSchemaError(ValueError):
    """A schema that refers to itself without end, or that is too large. Says which."""


class EvaluationBound:
    """The most evaluations of parts of one schema on any one place of a value, by the value's depth.

    Recursive schemas are fine: they end with the value. Raises UnboundedSchemaError where a part is checked against
    the same value again and again, or if there are too many parts.
    """

    def __init__(self, root: Schema) -> None:
        self._targets = Targets(root)
        self._same: list[list[int]] = []
        self._one: list[list[int]] = []
        self._further: list[list[int]] = []
        self._index(root)
        order = _in_order(self._same)
        if order is None:
            raise UnboundedSchemaError(UNRESOLVED)  # it never comes to an end
        self._order = order
        edges = (self._same[part] + self._one[part] + self._further[part] for part in range(len(self._same)))
        self.is_recursive = _in_order(list(edges)) is None
        self._levels = [self._level(None)]

    def at(self, depth: int | None) -> int:
        """Return the bound for values of so many levels, for any value if the schema isn't recursive.

        Raises UnboundedSchemaError if it takes too long.
        """
        while (depth is None or len(self._levels) <= depth) and any(self._levels[-1]):
            if len(self._levels) * len(self._order) > _MOST_STEPS:
                raise UnboundedSchemaError("is too large for values that are nested so deeply")
            self._levels.append(self._level(self._levels[-1]))
        return max(level[0] for level in (self._levels if depth is None else self._levels[: depth + 1]))

    def _index(self, root: Schema) -> None:
        """Number all parts that the root leads to, itself first."""
        numbers = {id(root): 0}
        parts = [root]

        def number(part: Schema) -> int:
            if id(part) not in numbers:
                if len(parts) >= _MOST_PARTS:
                    raise UnboundedSchemaError("is too large")
                numbers[id(part)] = len(parts)
                parts.append(part)
            return numbers[id(part)]

        for part in parts:  # grows during the iteration
            one, further = of_children(part)
            referred = (self._targets.get(part[keyword]) for keyword in REFERENCES if keyword in part)
            others = (*of_same_value(part), *(target for target in referred if target is not None))
            self._same.append([number(other) for other in others])
            self._one.append([number(other) for other in one])
            self._further.append([number(other) for other in further])

    def _level(self, above: list[int] | None) -> list[int]:
        """Return the bound of each part for one level of a value; None stands for the first level."""
        found = [0] * len(self._order)
        for part in self._order:
            count = 1
            if above is not None:
                one = max((above[other] for other in self._one[part]), default=0)
                count = one + sum(above[other] for other in self._further[part])
            found[part] = min(_LARGEST, count + sum(found[other] for other in self._same[part]))
        return found


def _in_order(following: Sequence[Sequence[int]]) -> list[int] | None:
    """Return the numbers so that each comes after those that follow from it, None where one follows from itself."""
    try:
        return list(TopologicalSorter(dict(enumerate(following))).static_order())
    except CycleError:
        return None


class UncheckableError(Exception):
    """A value can't be checked: says of the schema why."""


@dataclass(frozen=True, slots=True)
class CompiledSchema:
    """A schema that values can be checked against. `unusable` says why they can't."""

    document: Schema
    unusable: str = ""
    most_evaluations: int = _MOST_EVALUATIONS
    _validator: jsonschema_rs.Validator | None = None
    _bound: EvaluationBound | None = None
    _combines: bool = False

    def errors(self, value: object) -> list[jsonschema_rs.ValidationError] | None:
        """Return the errors of a value, only one of a large value, None for too many. Raises UncheckableError."""
        validator, evaluations = self._usable_for(value)
        try:
            if validator.is_valid(value):
                return []
            if evaluations <= _MOST_LISTED:
                return list(validator.iter_errors(value))
            if self._combines:
                return None
            validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            return [error]
        except ValueError as error:  # no JSON, or nested too deeply
            raise UncheckableError(_line(error)) from None
        return None

    def _usable_for(self, value: object) -> tuple[jsonschema_rs.Validator, int]:
        if self._validator is None or self._bound is None:
            raise UncheckableError(self.unusable)
        text = _text(value)
        try:
            evaluations = len(text) * self._bound.at(depth_of(text.decode()) if self._bound.is_recursive else None)
        except UnboundedSchemaError as error:
            raise UncheckableError(str(error)) from None
        if evaluations > self.most_evaluations:
            raise UncheckableError(f"takes too long to check {len(text):,} bytes")
        return self._validator, evaluations


def compiled(schema: Mapping[str, Any]) -> CompiledSchema:
    """Compile a schema. One that can't be used says why, and only when it is used."""
    document = without_unknown_dialect(schema)
    try:
        kept = _usable(document)
        bound = EvaluationBound(kept)
    except UnboundedSchemaError as error:
        return CompiledSchema(document, str(error))
    try:
        validator = jsonschema_rs.validator_for(
            dict(kept), validate_formats=False, pattern_options=_PATTERNS, offline=True
        )
    except jsonschema_rs.ValidationError as error:
        return CompiledSchema(document, UNRESOLVED if error.kind.name == "$ref" else f"is wrong: {_line(error)}")
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        return CompiledSchema(document, f"is wrong: {_line(error)}")
    combines = any(keyword in part for part in with_parts(document) for keyword in _COMBINING)
    return CompiledSchema(document, "", _MOST_EVALUATIONS, validator, bound, combines)


def fault_of(schema: Mapping[str, Any]) -> str | None:
    """Return why this isn't a valid JSON schema, None for a valid one. What it refers to isn't looked at."""
    document = without_unknown_dialect(schema)
    try:
        jsonschema_rs.meta.validate(dict(_usable(document)))
    except UnboundedSchemaError as error:
        return str(error)
    except (jsonschema_rs.ValidationError, ValueError, jsonschema_rs.ReferencingError) as error:
        return f"is not a valid JSON schema: {_line(error)}"
    return None


def without_unknown_dialect(schema: Mapping[str, Any]) -> Schema:
    """Return the schema without a `$schema` that isn't known: it is read as one of the newest dialect."""
    named = schema.get("$schema")
    if not isinstance(named, str) or named.removesuffix("#") in _DIALECTS:
        return schema
    return {keyword: value for keyword, value in schema.items() if keyword != "$schema"}


def is_unresolved(error: jsonschema_rs.ValidationError) -> bool:
    """Whether an error is that of a reference which can't be resolved."""
    kind = error.kind
    return isinstance(kind, jsonschema_rs.ValidationErrorKind.Constant) and kind.expected_value == _UNRESOLVED["const"]


def _usable(document: Schema) -> Schema:
    """Return the schema without patterns that can't be used, and with what fits nothing for references to the outside.

    Names that match a pattern that can't be used may be anything. Raises UnboundedSchemaError.
    """
    try:
        length, targets = len(_text(document)), Targets(document)
    except RecursionError:
        raise UnboundedSchemaError(_TOO_DEEP) from None
    if length > _MOST_CHARS:
        raise UnboundedSchemaError(f"has more than {_MOST_CHARS:,} characters")
    count = 0

    def usable(pattern: object) -> bool:
        nonlocal count
        count += 1
        return count <= _MOST_PATTERNS and isinstance(pattern, str) and _is_linear(pattern)

    def kept(part: Schema, level: int) -> Schema:
        if level > _MOST_LEVELS:
            raise UnboundedSchemaError(_TOO_DEEP)
        if any(keyword in part and targets.get(part[keyword]) is None for keyword in REFERENCES):
            return _UNRESOLVED
        others = list(all_of(part))
        found = replaced(part, {id(other): kept(other, level + 1) for other in others}) if others else dict(part)
        if isinstance(found.get("pattern"), str) and not usable(found["pattern"]):
            del found["pattern"]
        if isinstance(by_pattern := found.get("patternProperties"), dict):
            values = cast("dict[str, Any]", by_pattern)
            if left := {pattern for pattern in values if not usable(pattern)}:
                found["patternProperties"] = {key: values[key] for key in values if key not in left} | {"": True}
        return found

    return kept(document, 1)


@lru_cache(maxsize=4_096)
def _is_linear(pattern: str) -> bool:
    try:
        jsonschema_rs.validator_for({"pattern": pattern}, pattern_options=_PATTERNS)
    except ValueError:
        return False
    return True


def _text(value: object) -> bytes:
    """Return a value as JSON; what orjson doesn't take, such as integers beyond 64 bits, is written more slowly."""
    try:
        return orjson.dumps(value)
    except (TypeError, ValueError):
        return canonical(value).encode(errors="replace")


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0][:300]
