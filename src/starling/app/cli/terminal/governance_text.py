"""Rows of the governance table as texts."""

from typing import Any


def bounds_text(row: Any) -> str:
    """Return the members of a row that set a bound, such as `effects read · seconds 60`."""
    return " · ".join(f"{name} {value_text(value)}" for name, value in row.items() if value is not None)


def value_text(value: Any) -> str:
    """Return the value of a member; `–` where there is none."""
    if value is None:
        return "–"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"  # pyright: ignore[reportUnknownArgumentType]
    return f"{value:g}" if isinstance(value, float) else str(value) or "none"
