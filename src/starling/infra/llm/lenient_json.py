"""Reads JSON from other services, whose values may have any type."""

from typing import Any, cast

import orjson


def loads_object(text: str | bytes) -> dict[str, Any] | None:
    """Return the JSON object in `text`, or None."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def as_object(value: object) -> dict[str, Any]:
    """Return `value` if it is an object, else an empty object."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_items(value: object) -> list[Any]:
    """Return `value` if it is an array, else an empty list."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def as_text(value: object) -> str:
    """Return `value` if it is a string, else an empty string."""
    return value if isinstance(value, str) else ""


def as_count(value: object) -> int:
    """Return `value` if it is a non-negative integer, else zero."""
    return value if isinstance(value, int) and value >= 0 else 0
