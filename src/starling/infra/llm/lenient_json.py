"""Reads JSON that came from outside and may be anything at any place."""

from typing import Any, cast

import orjson


def loads_object(text: str | bytes) -> dict[str, Any] | None:
    """Return the JSON object in `text`, or None where there is none."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def as_object(value: object) -> dict[str, Any]:
    """Return `value` where it is an object, else an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_items(value: object) -> list[Any]:
    """Return `value` where it is an array, else an empty one."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def as_text(value: object) -> str:
    """Return `value` where it is text, else an empty one."""
    return value if isinstance(value, str) else ""


def as_count(value: object) -> int:
    """Return `value` where it is a number of something, else zero."""
    return value if isinstance(value, int) and value >= 0 else 0
