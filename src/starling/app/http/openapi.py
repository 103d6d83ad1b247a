"""The description at `/openapi.json`: errors are problems, of their media type; texts and examples of what is sent."""

import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from typing import Any, Final, cast

from fastapi import FastAPI
from fastapi.openapi.utils import get_fields_from_routes
from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from starling.app.http.openai_errors import OpenAIError, is_for_openai
from starling.app.http.problems import PROBLEM_TYPE, Problem
from starling.core.json_schemas.subschemas import value_at

_ERRORS: Final[Sequence[tuple[type[BaseModel], JsonSchemaMode]]] = (
    (Problem, "serialization"),
    (OpenAIError, "serialization"),
)
_PROBLEM: Final = {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
_OPENAI_ERROR: Final = {"application/json": {"schema": {"$ref": "#/components/schemas/OpenAIError"}}}
_REFERENCE: Final = "#/components/schemas/{model}"
_EVENT: Final = {"$ref": "#/components/schemas/AnyEvent"}
_EVENT_AS_JSON: Final = {"application/json": {"schema": _EVENT}}  # what FastAPI makes of a stream
_SENT_EVENT: Final = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "event": {"type": "string"},
        "data": {"type": "string", "contentMediaType": "application/json", "contentSchema": _EVENT},
    },
    "examples": [
        {
            "id": "9",
            "event": "thinking",
            "data": '{"type": "thinking", "content": "It is 06:12 in Lima [1].", "message_id": "qa"}',
        }
    ],
}
_NEVER_SENT: Final = ("HTTPValidationError", "ValidationError")  # FastAPI's own form of an invalid request


def describe(app: FastAPI, *, keyless: bool) -> None:
    """Describe the API as it answers; with `keyless`, keys as optional: calls from this machine need none."""
    described = app.openapi

    @cache
    def openapi() -> dict[str, Any]:
        document = described()
        schemas = document["components"]["schemas"]
        schemas |= models_json_schema(_ERRORS, ref_template=_REFERENCE)[1]["$defs"]
        for path, operation in ((at, one) for at, of in document["paths"].items() for one in of.values()):
            _describe_responses(path, operation)
            if keyless and (ways := operation.get("security")):
                operation["security"] = [{}, *filter(None, ways)]
        for name in _NEVER_SENT:
            schemas.pop(name, None)
        fields = get_fields_from_routes(app.routes)
        for found in _dataclasses([TypeAdapter[Any](one.field_info.annotation).core_schema for one in fields]):
            if found.__name__ in schemas:
                schemas[found.__name__]["description"] = inspect.getdoc(found)
        _add_examples(document)
        return document

    app.openapi = openapi


def _describe_responses(path: str, operation: dict[str, Any]) -> None:
    needs_scope = "security" in operation  # open paths need none, but a wrong key is refused there too
    for status in (401, *([403] if needs_scope else []), 429):
        operation["responses"].setdefault(str(status), {"description": HTTPStatus(status).phrase})
    errors = _OPENAI_ERROR if is_for_openai(path) else _PROBLEM
    if errors is _OPENAI_ERROR and (invalid := operation["responses"].pop("422", None)):
        operation["responses"]["400"] = invalid | {"description": "Bad Request"}
    for status, response in operation["responses"].items():
        if not status.startswith(("2", "3")):
            response["content"] = errors
        elif response.get("content") == _EVENT_AS_JSON:
            response["content"] = {"text/event-stream": {"schema": _SENT_EVENT}}


def _dataclasses(schema: object) -> Iterator[type]:
    """Yield the dataclasses within a schema of pydantic, which leaves out what their docstrings say."""
    if isinstance(schema, Mapping):
        mapping = cast("Mapping[str, object]", schema)
        if mapping.get("type") == "dataclass":
            yield cast("type", mapping["cls"])
        schema = list(mapping.values())
    if isinstance(schema, list | tuple):
        for part in cast("Sequence[object]", schema):
            yield from _dataclasses(part)


def _add_examples(document: dict[str, Any]) -> None:
    """Add the examples of `openapi_examples.json`: by schema, and by `method path status media-type` of a content."""
    examples = json.loads(files(__package__).joinpath("openapi_examples.json").read_bytes())
    examples = _with_shared_parts(examples, examples["schemas"])
    for name, found in examples["schemas"].items():
        document["components"]["schemas"][name]["examples"] = found
    for place, found in examples["contents"].items():
        method, path, part, media_type = place.split()
        operation = document["paths"][path][method]
        sent = operation["requestBody"] if part == "body" else operation["responses"][part]
        sent["content"][media_type]["schema"]["examples"] = found


def _with_shared_parts(value: Any, schemas: Mapping[str, Any]) -> Any:
    """Return a value with the part of an example in place of each `{"$same": "RunRecord/0"}`, where it is written."""
    if isinstance(value, list):
        return [_with_shared_parts(item, schemas) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    members = cast("dict[str, Any]", value)
    if "$same" in members:
        return _with_shared_parts(value_at(schemas, members["$same"].split("/")), schemas)
    return {name: _with_shared_parts(item, schemas) for name, item in members.items()}
