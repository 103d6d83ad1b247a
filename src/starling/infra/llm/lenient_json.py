"""Reads JSON from other services, whose values may have any type."""

from typing import Any, cast

from starling.core.model_output.json_document import loads_object

__all__ = ["as_count", "as_items", "as_object", "as_text", "loads_object"]


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
