"""Conversion of JSON schemas for structured output in `strict` mode."""

from collections.abc import Mapping

from starling.core.json import Json, JsonObject

# Ignored by strict decoding; the reader of the answer validates it against the full schema.
_UNCHECKED = frozenset(
    {"minLength", "maxLength", "uniqueItems", "default", "examples", "minProperties", "maxProperties"}
)
_UNSUPPORTED = frozenset(
    {"allOf", "oneOf", "not", "if", "then", "else", "patternProperties", "dependentRequired", "dependentSchemas"}
    | {"contains", "prefixItems", "propertyNames", "unevaluatedProperties", "unevaluatedItems"}
)
_SCHEMA_MAPS = frozenset({"properties", "$defs", "definitions"})
_VALUES = frozenset({"enum", "const", "required", "type"})


class _NotStrict(Exception):  # noqa: N818 - a signal inside this module
    pass


def strict_form(schema: JsonObject) -> JsonObject | None:
    """Return `schema` as strict decoding takes it: without the keywords that it ignores, every property required.

    What fits the result fits `schema` but for these keywords. None if it can't be strict: an object is open, or a
    keyword is unsupported.
    """
    if schema.get("type") != "object":
        return None
    try:
        return _strict(schema)
    except _NotStrict:
        return None


def _strict(schema: JsonObject) -> dict[str, Json]:
    if not _UNSUPPORTED.isdisjoint(schema) or not _is_closed(schema):
        raise _NotStrict
    strict = {key: _strict_value(key, value) for key, value in schema.items() if key not in _UNCHECKED}
    if isinstance(properties := schema.get("properties"), Mapping):
        strict["required"] = [*properties]
    return strict


def _strict_value(key: str, value: Json) -> Json:
    if key in _SCHEMA_MAPS and isinstance(value, Mapping):
        return {name: _subschema(item) for name, item in value.items()}
    if key in _VALUES:
        return value
    if isinstance(value, Mapping):
        return _strict(value)
    if key == "anyOf" and isinstance(value, list):
        return [_subschema(item) for item in value]
    return value


def _subschema(value: Json) -> Json:
    if not isinstance(value, Mapping):  # `true` and `false` are schemas too, but not here
        raise _NotStrict
    return _strict(value)


def _is_closed(schema: JsonObject) -> bool:
    if schema.get("type") != "object":
        return True
    return schema.get("additionalProperties") is False and isinstance(schema.get("properties"), Mapping)
