"""What there may be in a body, counted before it is validated; the program of the helper process for costly bodies.

It imports only the standard library. It reads a line of JSON, the arguments of `excess`, and the body from stdin.
"""

import json
import sys
from collections.abc import Sequence
from typing import Any

LEVELS = 64
_LINES = 5_000
_LINE_BYTES = 2**19


def main() -> None:
    """Write what there is too much of in a body; for one that is not JSON the reason in a list."""
    values, by_line = json.loads(sys.stdin.buffer.readline())
    try:
        found: object = excess(sys.stdin.buffer.read(), values, by_line=by_line)
    except ValueError as error:
        found = [str(error)]
    sys.stdout.write(json.dumps(found))


def excess(body: bytes, values: int, *, by_line: bool) -> str:
    """Return which limit JSON exceeds and where, empty for none; `values` are the keys and items of a text.

    With `by_line` each line is a text, and whoever reads it says if it is not JSON. Raises ValueError for another one.
    """
    if not by_line:
        return _excess(body, values)
    if body.count(b"\n") > _LINES:
        return f"more than {_LINES:,} lines"
    for number, line in enumerate(body.split(b"\n"), 1):
        try:
            found = f"more than {_LINE_BYTES:,} bytes" if len(line) > _LINE_BYTES else _excess(line, values)
        except ValueError:
            continue
        if found:
            return f"{found} in line {number}"
    return ""


def _excess(text: bytes, values: int) -> str:
    left = values
    try:
        for name, value in _members(json.loads(text, object_pairs_hook=tuple)):  # twice the same name counts twice
            left -= 1 + _count(value, LEVELS - 1)
            if left < 0:
                return f"more than {values:,} keys and items, counted up to `{str(name)[:60]}`"
    except RecursionError:
        return f"more than {LEVELS} levels of lists and objects"
    return ""


def _count(value: Any, levels: int) -> int:
    """Return how many keys and items there are in a value. Raises RecursionError for more levels than it may have."""
    members = _members(value)
    if members and not levels:
        raise RecursionError
    return len(members) + sum(_count(item, levels - 1) for _, item in members)


def _members(value: Any) -> Sequence[tuple[object, Any]]:
    return value if isinstance(value, tuple) else list(enumerate(value)) if isinstance(value, list) else ()  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
