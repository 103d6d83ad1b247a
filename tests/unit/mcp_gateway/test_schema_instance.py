"""Instances of output schemas: what comes out is small, always the same and valid."""

from typing import Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from mcp_gateway.schemas.instance import instance_of
from mcp_gateway.schemas.validation import schema_fault
from starling.core.json_schemas.compiled import compiled

NODE = {"properties": {"next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]}}, "required": ["next"]}
ENDLESS = {"type": "object", "properties": {"inner": {"$ref": "#/$defs/endless"}}, "required": ["inner"]}


def found(schema: dict[str, Any]) -> Any:
    return instance_of(compiled(schema))


def field(schema: object, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": schema}, "required": ["a"], **more}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"const": [1]}, [1]),
        ({"enum": ["red", "blue"]}, "red"),
        ({"enum": ["red", "blue"], "default": "blue"}, "blue"),
        ({"type": "string", "default": "usual"}, "usual"),
        ({"type": "integer", "default": "wrong"}, 0),
        ({"type": "string", "examples": ["Lima", "Rome"]}, "Lima"),
        ({"type": "string"}, "text"),
        ({"type": "string", "minLength": 6}, "text.."),
        ({"type": "string", "maxLength": 2}, "te"),
        ({"type": "string", "format": "date"}, "2026-01-01"),
        ({"type": "boolean"}, True),
        ({"type": "null"}, None),
        ({"type": ["null", "string"]}, "text"),
        ({"type": "integer", "minimum": 3}, 3),
        ({"type": "number", "exclusiveMinimum": 0, "maximum": 0.5}, 0.5),
        ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.5}, 0.25),
        ({"type": "integer", "multipleOf": 7, "minimum": 10}, 14),
        ({"type": "array", "items": {"type": "integer"}}, []),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 2}, [0, 0]),
        ({"type": "array", "items": {"enum": ["x", "y"]}, "minItems": 2, "uniqueItems": True}, ["x", "y"]),
        ({"type": "array", "contains": {"const": 4}}, [4]),
        ({"type": "array", "prefixItems": [{"const": 1}], "items": {"const": 2}, "minItems": 3}, [1, 2, 2]),
        (field({"type": "string"}, properties={"a": {"type": "string"}, "b": {"type": "string"}}), {"a": "text"}),
        ({"type": "object", "properties": {"b": {"const": 4}}, "minProperties": 1}, {"b": 4}),
        ({"required": ["b"], "additionalProperties": {"type": "boolean"}}, {"b": True}),
        ({"anyOf": [False, {"type": "integer"}]}, 0),
        ({"oneOf": [{"type": "number"}, {"type": "integer"}, {"const": "only"}]}, "only"),
        ({"allOf": [field({"type": "integer"}), {"required": ["b"]}]}, {"a": 0, "b": "text"}),
        ({"$ref": "#/$defs/node"}, {"next": None}),
        (True, "text"),
        ({}, "text"),
    ],
)
def test_instance_has_the_first_value_that_fits(schema: object, value: object) -> None:
    assert found(field(schema, **{"$defs": {"node": NODE}})) == {"a": value}


@pytest.mark.parametrize(
    "schema",
    [
        False,
        {"type": "string", "pattern": "^[0-9]{4}$"},
        {"type": "integer", "minimum": 3, "maximum": 2},
        {"type": "array", "items": {"type": "string"}, "minItems": 10**9},
        {"type": "array", "minItems": 50, "items": {"$ref": "#/$defs/wide"}},
        {"$ref": "#/$defs/endless"},
        {"$ref": "#/$defs/nowhere"},
        {"$ref": "https://example.com/schema"},
        {"$ref": "#/$defs/many"},
        {"type": "number", "multipleOf": 1e-320, "minimum": 1e300},
    ],
)
def test_schema_without_an_instance_that_can_be_found_gets_none(schema: object) -> None:
    many = {"anyOf": [{"$ref": "#/$defs/many"}] * 10}

    wide: dict[str, Any] = {"type": "string"}
    for _ in range(5):
        wide = {"type": "array", "items": wide, "minItems": 50}

    assert found(field(schema, **{"$defs": {"endless": ENDLESS, "many": many, "wide": wide}})) is None


def test_schema_with_many_fields_has_an_instance() -> None:
    rows = {"type": "array", "items": _record([{"type": "string"}] * 60), "minItems": 1}

    assert found(_record([_record([rows, rows]), _record([_record([rows])])])) is not None


def test_schema_of_another_dialect_has_an_instance() -> None:
    schema = field({"type": "number", "minimum": 0, "exclusiveMinimum": True, "maximum": 1})

    assert found({"$schema": "http://json-schema.org/draft-04/schema#", **schema}) == {"a": 1}


_scalars = st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.sampled_from(["", "text", "red"]))


def _parts(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Schemas whose keywords needn't go together."""
    names = st.sampled_from(["a", "b", "c"])
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["object", "array", "string", "integer", "number", "boolean", "null"]),
            "const": _scalars,
            "enum": st.lists(_scalars, min_size=1, max_size=3, unique_by=repr),
            "default": _scalars,
            "examples": st.lists(_scalars, max_size=2),
            "minimum": st.integers(-3, 3),
            "exclusiveMaximum": st.floats(-3, 3),
            "multipleOf": st.sampled_from([1, 2, 0.5, 3]),
            "minLength": st.integers(0, 6),
            "maxLength": st.integers(0, 6),
            "pattern": st.sampled_from(["^t", "[0-9]", "(?<js>x)"]),
            "properties": st.dictionaries(names, inner, max_size=3),
            "required": st.lists(names, max_size=2, unique=True),
            "additionalProperties": inner,
            "minProperties": st.integers(0, 2),
            "items": inner,
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
            "contains": inner,
            "minItems": st.integers(0, 3),
            "uniqueItems": st.booleans(),
            "$ref": st.sampled_from(["#/$defs/a", "#/properties/a", "#", "#/$defs/none", "other"]),
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "oneOf": st.lists(inner, min_size=1, max_size=2),
            "not": inner,
        },
    )


_anything: dict[str, Any] = {}
_schemas = st.recursive(st.booleans() | st.just(_anything), lambda inner: _parts(inner) | inner, max_leaves=6)


@settings(max_examples=40, deadline=None)
@example({"not": {"$ref": "#/properties/a"}}, True)
@example({"oneOf": [{"$ref": "#/properties/a"}, True]}, True)
@given(_parts(_schemas), _schemas)
def test_instance_is_valid_where_one_comes_out(schema: dict[str, Any], definition: Any) -> None:
    whole = {**schema, "type": "object", "$defs": {"a": definition}}
    if schema_fault(whole) is not None:
        return

    value = found(whole)

    assert value == found(whole)
    if value is not None and "(?<js>x)" not in repr(whole):
        Draft202012Validator(_without_dangling(whole, whole)).validate(value)


def _without_dangling(part: Any, whole: dict[str, Any]) -> Any:
    """Return a schema in which what refers to nothing fits nothing; the other implementation raises an error there."""
    if isinstance(part, list):
        return [_without_dangling(item, whole) for item in cast("list[Any]", part)]
    if not isinstance(part, dict):
        return part
    members = cast("dict[str, Any]", part)
    known = {None, "#", "#/$defs/a", *(["#/properties/a"] if "a" in whole.get("properties", {}) else [])}
    if members.get("$ref") not in known:
        return False
    return {name: _without_dangling(member, whole) for name, member in members.items()}


def _record(fields: list[Any]) -> dict[str, Any]:
    names = [f"field{number}" for number in range(len(fields))]
    return {"type": "object", "properties": dict(zip(names, fields, strict=True)), "required": names}


_leaves = st.sampled_from(["string", "integer", "number", "boolean", "null"]).map(lambda kind: {"type": kind})
_records = st.recursive(_leaves, lambda inner: st.lists(inner, max_size=3).map(_record), max_leaves=8)


@settings(max_examples=40, deadline=None)
@given(st.lists(_records, max_size=3).map(_record))
def test_schema_of_plain_records_always_has_an_instance(schema: dict[str, Any]) -> None:
    value = found(schema)

    Draft202012Validator(schema).validate(value)
