"""The mark of Python functions that a server in the platform's process offers as tools."""

from functools import partial
from typing import Any, Final

_MARK: Final = "__starling_tool__"


def tool(function: Any = None, /, *, name: str = "", description: str = "") -> Any:
    """Mark a function as a tool, as `@tool` or `@tool(name=…, description=…)`. The function itself is not changed."""
    if function is None:
        return partial(tool, name=name, description=description)
    setattr(function, _MARK, (name, description))
    return function


def mark_of(function: object) -> tuple[str, str] | None:
    """Return the name and description of a marked function, empty for its own; None for others."""
    return getattr(function, _MARK, None)
