"""What an agent is told about arguments that don't fit."""

from typing import Any

import pytest

from mcp_gateway.schemas.validation import Validators, faults, schema_fault

CITY: dict[str, Any] = {
    "type": "object",
    "properties": {
        "zone": {"type": "string", "description": "IANA name, such as America/Lima"},
        "days": {"type": "array", "items": {"type": "integer", "minimum": 1}},
        "unit": {"enum": ["c", "f"]},
    },
    "required": ["zone"],
    "additionalProperties": False,
}


def told(schema: dict[str, Any], value: Any) -> list[str]:
    return faults(Validators().get("pin", "input", schema), value, "arguments")


def test_what_is_missing_comes_with_what_it_means() -> None:
    assert told(CITY, {}) == [
        "arguments: 'zone' is a required property (zone: string, IANA name, such as America/Lima)"
    ]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"zone": 5}, "arguments.zone: 5 is not of type 'string' (IANA name"),
        ({"zone": "UTC", "days": [1, 0]}, "arguments.days[1]: 0 is less than the minimum of 1"),
        ({"zone": "UTC", "unit": "k"}, "arguments.unit: 'k' is not one of ['c', 'f']"),
        ({"zone": "UTC", "city": "Lima"}, "arguments: Additional properties are not allowed ('city' was unexpected)"),
    ],
)
def test_a_fault_names_its_place_and_what_was_expected(value: dict[str, Any], said: str) -> None:
    (fault,) = told(CITY, value)

    assert fault.startswith(said)


def test_the_draft_is_the_one_that_the_schema_names() -> None:
    tuple_of_draft_7 = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"pair": {"type": "array", "items": [{"type": "integer"}, {"type": "string"}]}},
    }

    assert told(tuple_of_draft_7, {"pair": [1, "a"]}) == []
    assert told(tuple_of_draft_7, {"pair": ["a", 1]})


def test_a_reference_to_the_outside_is_a_fault_and_never_fetched() -> None:
    remote = {"type": "object", "properties": {"x": {"$ref": "http://127.0.0.1:9/schema.json"}}}

    assert told(remote, {"x": 1}) == ["the tool's schema refers to something that can't be resolved"]


def test_reference_to_the_outside_is_no_fault_of_a_value_that_does_not_reach_it() -> None:
    remote = {"type": "object", "properties": {"x": {"$ref": "http://127.0.0.1:9/schema.json"}, "y": {}}}

    assert schema_fault(remote) is None
    assert told(remote, {"y": 1}) == []


def test_a_reference_to_itself_without_end_is_a_fault() -> None:
    endless = {"type": "object", "$ref": "#"}

    assert told(endless, {}) == ["the tool's schema refers to something that can't be resolved"]


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (None, "is not an object"),
        ([], "is not an object"),
        ({"type": "string"}, "doesn't describe an object"),
        ({"type": "object", "properties": []}, "is not a valid JSON schema"),
        ({"type": "object", "properties": {"x": {"type": "text"}}}, "is not a valid JSON schema"),
    ],
)
def test_what_is_no_schema_of_an_object_is_told(schema: object, said: str) -> None:
    assert said in (schema_fault(schema) or "")


@pytest.mark.parametrize("pattern", ["^(?=a)b$", r"^(a)\1$", "(?<!x)y", "^(", "^[a-z]{1,9}{9000}{9000}$"])
def test_pattern_that_the_linear_engine_does_not_know_is_left_to_the_server(pattern: str) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "string", "pattern": pattern}}}

    assert schema_fault(schema) is None
    assert told(schema, {"x": "abc"}) == []
    assert told(schema, {"x": 5})


def test_name_that_an_unknown_pattern_may_match_is_no_fault() -> None:
    schema = {"type": "object", "patternProperties": {"^(?=x)": {"type": "string"}}, "additionalProperties": False}

    assert told(schema, {"xy": 5}) == []


def test_property_called_pattern_is_no_pattern() -> None:
    schema = {"type": "object", "properties": {"pattern": {"type": "integer"}}, "required": ["pattern"]}

    assert told(schema, {"pattern": 5}) == []
    assert told(schema, {"pattern": "("})


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|aa)+$", "(x+x+)+y", "^([a-z]+)*[0-9]$"])
def test_pattern_takes_linear_time(pattern: str) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "string", "pattern": pattern}}}

    (fault,) = told(schema, {"x": f"{'a' * 5_000}!"})

    assert fault.startswith("arguments.x: 'aaa")
    assert fault.endswith(f"… does not match '{pattern}'")


def doubling(keyword: str, levels: int = 40) -> dict[str, Any]:
    """A schema of a few lines whose last part is checked 2 ** levels times against one value."""
    both = {f"a{n}": {keyword: [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(levels)}
    return {"type": "object", "properties": {"x": {"$ref": "#/$defs/a0"}}, "$defs": both | {f"a{levels}": {}}}


TREE: dict[str, Any] = {
    "type": "object",
    "properties": {"x": {"$ref": "#/$defs/tree"}},
    "$defs": {"tree": {"anyOf": [{"properties": {"a": {"$ref": "#/$defs/tree"}}, "required": ["a"]}] * 2}},
}


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        pytest.param(doubling("allOf"), {"x": 1}, id="references that double"),
        pytest.param(doubling("oneOf"), {"x": 1}, id="alternatives that double"),
        pytest.param(TREE, {"x": nested(60)}, id="a recursive schema that doubles at each level of the value"),
        pytest.param({"type": "object", "anyOf": [{"type": "object"}] * 900}, {"x": "a" * 10_000}, id="a large value"),
    ],
)
def test_value_whose_check_would_take_too_long_is_refused_unchecked(schema: dict[str, Any], value: Any) -> None:
    assert schema_fault(schema) is None
    (fault,) = told(schema, value)
    assert fault.startswith("the tool's schema takes too long to check ")


def test_recursive_schema_is_checked_at_every_level() -> None:
    rows = {
        "type": "object",
        "properties": {"rows": {"type": "array", "items": {"$ref": "#"}}, "n": {"type": "integer"}},
    }

    assert told(rows, {"rows": [{"rows": [{"rows": [], "n": 1}]}]}) == []
    assert told(rows, {"rows": [{"rows": [{"n": "one"}]}]}) == [
        "arguments.rows[0].rows[0].n: 'one' is not of type 'integer'"
    ]


def test_of_a_large_value_the_first_fault_is_told() -> None:
    schema = {"type": "object", "properties": {"rows": {"items": {"type": "integer"}}}}

    assert told(schema, {"rows": ["no"] * 50_000}) == ["arguments.rows[0]: 'no' is not of type 'integer'"]


def test_of_a_large_value_with_alternatives_it_is_told_that_it_does_not_fit() -> None:
    schema = {"type": "object", "properties": {"rows": {"items": {"anyOf": [{"type": "integer"}]}}}}

    (fault,) = told(schema, {"rows": ["no"] * 50_000})

    assert fault.startswith("arguments: it doesn't fit the schema")


def deep_schema(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param(deep_schema(300), id="deep"),
        pytest.param(deep_schema(5_000), id="deeper than the interpreter's stack"),
        pytest.param({"type": "object", "description": "x" * 300_000}, id="huge"),
    ],
)
def test_schema_that_is_too_large_or_deep_can_not_be_used(schema: dict[str, Any]) -> None:
    assert schema_fault(schema) is not None
    assert told(schema, {"a": {}})[0].startswith("the tool's schema ")


def test_a_schema_that_names_no_known_dialect_is_read_as_the_newest() -> None:
    assert schema_fault({"$schema": {}, "type": "object"}) is not None
    assert schema_fault({"$schema": "https://nowhere.example/draft", "type": "object"}) is None


def test_a_schema_without_a_type_is_taken_as_that_of_an_object() -> None:
    assert schema_fault({}) is None


def test_a_validator_is_compiled_once() -> None:
    validators = Validators()

    assert validators.get("pin", "input", CITY) is validators.get("pin", "input", CITY)
