"""Conversion of schemas to their strict form."""

import re
from typing import cast

import pytest

from brain.planning.decision import DECISION, OPEN_DECISION, VERDICT
from starling.core.json import Json, canonical
from starling.core.llm import ResponseSchema
from starling.infra.llm.request_forms import strict_form


def closed(**properties: Json) -> dict[str, Json]:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def test_strict_form_omits_unchecked_keywords() -> None:
    schema = closed(name={"type": "string", "minLength": 1, "pattern": "^a"}, minLength={"type": "integer"})

    assert strict_form(schema) == closed(name={"type": "string", "pattern": "^a"}, minLength={"type": "integer"})


def test_closed_definitions_are_strict() -> None:
    schema = closed(items={"type": "array", "items": {"$ref": "#/$defs/Item"}}) | {"$defs": {"Item": closed()}}

    assert strict_form(schema) == schema


def test_open_object_is_not_strict() -> None:
    assert strict_form({"type": "object", "properties": {}}) is None
    assert strict_form(closed(inner={"type": "object", "additionalProperties": {"type": "string"}})) is None


def test_optional_property_is_required_in_the_strict_form() -> None:
    schema = closed(name={"type": "string"}, age={"type": "integer", "default": 1}) | {"required": ["name"]}

    assert strict_form(schema) == closed(name={"type": "string"}, age={"type": "integer"})


@pytest.mark.parametrize("response", [DECISION, OPEN_DECISION, VERDICT])
def test_documents_of_runs_have_a_strict_form_that_requires_what_their_schema_requires(
    response: ResponseSchema,
) -> None:
    strict = strict_form(response.schema)

    assert strict is not None
    assert {*cast("list[str]", response.schema["required"])} <= {*cast("list[str]", strict["required"])}


@pytest.mark.parametrize("response", [DECISION, OPEN_DECISION, VERDICT])
def test_documents_of_runs_are_asked_for_without_what_lengthens_a_prompt(response: ResponseSchema) -> None:
    keys = set(re.findall(r'"([^"]+)":', canonical(response.schema)))

    assert keys.isdisjoint({"title", "description", "default", "$defs", "$ref"})


def test_unsupported_keyword_is_not_strict() -> None:
    assert strict_form(closed(either={"oneOf": [{"type": "string"}]})) is None
    assert strict_form(closed(either={"anyOf": [{"type": "string"}, {"type": "object"}]})) is None
    assert strict_form(closed(any=True)) is None


def test_schema_that_is_not_an_object_is_not_strict() -> None:
    assert strict_form({"type": "array", "items": {"type": "string"}}) is None
    assert strict_form({}) is None
