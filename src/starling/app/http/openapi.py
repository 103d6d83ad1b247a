"""The description at `/openapi.json`: errors are problems, of their media type; where keys are optional."""

from collections.abc import Iterator
from typing import Any, Final

from fastapi import FastAPI

PROBLEM_TYPE: Final = "application/problem+json"
_PROBLEM: Final = {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
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


def describe_problems(app: FastAPI) -> None:
    """Describe errors and events as they are sent."""
    described = app.openapi

    def openapi() -> dict[str, Any]:
        schema = described()
        for operation in _operations(schema):
            if "security" not in operation:  # open paths need no scope, but a wrong key is refused there too
                operation["responses"].pop("403", None)
        for status, response in _responses(schema):
            if not status.startswith(("2", "3")):
                response["content"] = _PROBLEM
            elif response.get("content") == _EVENT_AS_JSON:
                response["content"] = {"text/event-stream": {"schema": _SENT_EVENT}}
        for name in _NEVER_SENT:
            schema["components"]["schemas"].pop(name, None)
        for model in schema["components"]["schemas"].values():
            _restore_nulls(model)
        return schema

    app.openapi = openapi


def describe_keys_as_optional(app: FastAPI) -> None:
    """Describe keys as optional: calls from this machine need none."""
    described = app.openapi

    def openapi() -> dict[str, Any]:
        schema = described()
        for operation in _operations(schema):
            if ways := operation.get("security"):
                operation["security"] = [{}, *filter(None, ways)]
        return schema

    app.openapi = openapi


def _restore_nulls(model: dict[str, Any]) -> None:
    """Put null where it stood in the examples of a model: FastAPI leaves it out of the whole description."""
    for example in model.get("examples", ()):
        if isinstance(example, dict):
            example.update(dict.fromkeys(set(model.get("required", ())) - example.keys()))


def _responses(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for operation in _operations(schema):
        yield from operation["responses"].items()


def _operations(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for path in schema["paths"].values():
        yield from path.values()
