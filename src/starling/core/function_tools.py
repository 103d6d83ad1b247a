"""The mark of Python functions that a server in the platform's process offers as tools."""

from functools import partial
from inspect import getattr_static
from types import MethodType
from typing import Any, Final, cast

_MARK: Final = "__starling_tool__"


def tool(function: Any = None, /, *, name: str = "", description: str = "") -> Any:
    """Mark a function as a tool, as `@tool` or `@tool(name=…, description=…)`. The function itself is not changed."""
    if function is None:
        return partial(tool, name=name, description=description)
    setattr(function, _MARK, (name, description))
    return function


def mark_of(function: object) -> tuple[str, str] | None:
    """Return the name and description of a marked function, empty for its own; None for others.

    No code of an object is run to find its mark.
    """
    if type(function) in (MethodType, staticmethod, classmethod):
        function = cast("MethodType", function).__func__
    return getattr_static(function, _MARK, None)
