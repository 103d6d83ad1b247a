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


def test_arguments_that_fit_have_no_faults() -> None:
    assert told(CITY, {"zone": "UTC", "days": [1, 2], "unit": "c"}) == []


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


def test_a_reference_to_itself_without_end_is_a_fault() -> None:
    endless = {"type": "object", "$ref": "#"}

    assert told(endless, {}) == ["the tool's schema refers to something that can't be resolved"]


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (None, "is no object"),
        ([], "is no object"),
        ({"type": "string"}, "doesn't describe an object"),
        ({"type": "object", "properties": []}, "is no valid JSON schema"),
        ({"type": "object", "properties": {"x": {"type": "text"}}}, "is no valid JSON schema"),
    ],
)
def test_what_is_no_schema_of_an_object_is_told(schema: object, said: str) -> None:
    assert said in (schema_fault(schema) or "")


def test_a_pattern_that_only_javascript_understands_is_left_to_the_server() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "string", "pattern": r"^\p{L}+$"}}}

    assert schema_fault(schema) is None
    assert told(schema, {"x": "abc"}) == []
    assert told(schema, {"x": 5})


def test_patterns_count() -> None:
    assert told({"type": "object", "properties": {"x": {"pattern": "^a$"}}}, {"x": "b"})


def test_a_schema_that_names_no_known_dialect_is_read_as_the_newest() -> None:
    assert schema_fault({"$schema": {}, "type": "object"}) is not None
    assert schema_fault({"$schema": "https://nowhere.example/draft", "type": "object"}) is None


def test_a_schema_without_a_type_is_taken_as_that_of_an_object() -> None:
    assert schema_fault({}) is None


def test_a_validator_is_compiled_once() -> None:
    validators = Validators()

    assert validators.get("pin", "input", CITY) is validators.get("pin", "input", CITY)
