"""The tree of a run as lines of text: what was done, how it ended, how long it took and its tokens."""

from collections.abc import Iterator
from typing import Any, Final

from rich.cells import cell_len, set_cell_size

from starling.app.cli.terminal.event_text import one_line, seconds_text
from starling.app.cli.terminal.output import printable

STYLES: Final = {
    "failed": "red",
    "REJECTED": "red",
    "rejected": "red",
    "in_doubt": "red",
    "unusable": "red",
    "expired": "red",
    "parked": "red",
    "cancelled": "yellow",
    "not begun": "dim",
    "FIXED": "yellow",
}
"""How the state of a line is shown, where it is not as usual."""

_LEAST_TEXT: Final = 16


def tree_lines(root: dict[str, Any], width: int) -> Iterator[tuple[str, str]]:
    """Yield the lines of a tree, each at most `width` characters long, with the state of what it shows."""
    yield _line("", root, width), root["state"]
    yield from _below(root["children"], "", width)


def _below(children: list[dict[str, Any]], indent: str, width: int) -> Iterator[tuple[str, str]]:
    for number, child in enumerate(children, start=1):
        last = number == len(children)
        yield _line(f"{indent}{'└─ ' if last else '├─ '}", child, width), child["state"]
        yield from _below(child["children"], f"{indent}{'   ' if last else '│  '}", width)


def _line(indent: str, node: dict[str, Any], width: int) -> str:
    """Return a line: the text is cut where state, time and tokens would have no room."""
    notes = "  ".join(filter(None, (node["state"], _seconds(node), _tokens(node))))
    room = max(_LEAST_TEXT, width - cell_len(indent) - cell_len(notes) - 2)
    text = printable(one_line(node["text"], room))
    if cell_len(text) > room:  # of wide characters fewer fit in
        text = set_cell_size(text, room)
    return f"{indent}{text}  {notes}"


def _seconds(node: dict[str, Any]) -> str:
    return seconds_text(node["seconds"]) if node["seconds"] is not None else ""


def _tokens(node: dict[str, Any]) -> str:
    return f"{node['tokens']:,} tokens" if node["tokens"] else ""
