"""Terminal output: results on stdout, everything else on stderr."""

import contextlib
import json
import textwrap
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

_LEAST_WIDTH, _MOST_WIDTH = 30, 110  # of paragraphs
_GAP, _LAST_COLUMN = 2, 20  # characters between columns, and what the last one has at least
# Separators of lines, changes of the direction of writing, and what is invisible: they hide or reorder what is shown.
_DECEIVING = (*range(0x2028, 0x202F), *range(0x2066, 0x2070), *range(0xFFF9, 0xFFFC), *range(0xE0000, 0xE0080))
_REPLACED = dict.fromkeys([*range(32), *range(127, 160), *_DECEIVING], "\N{REPLACEMENT CHARACTER}")
_CONTROLS = _REPLACED | {9: "\t", 10: "\n", 13: ""}


@cache
def results() -> Console:
    """Return the console for results; without a terminal it prints plain lines of any length."""
    return Console(highlight=False, soft_wrap=True)


@cache
def diagnostics() -> Console:
    """Return the console for progress, logs and hints."""
    return Console(highlight=False, soft_wrap=True, stderr=True)


def printable(text: str) -> str:
    """Return text without characters that could control the terminal, or hide or reorder what it shows."""
    return text.translate(_CONTROLS)


def print_line(text: str = "", style: str | None = None) -> None:
    """Print one line as it is, with no markup read into it."""
    write(results(), f"{text}\n", style)


def print_paragraph(text: str, indent: int = 2) -> None:
    """Print indented text: wrapped between words on a terminal, one line in a pipe."""
    line = " ".join(text.split())
    console, blank = results(), " " * indent
    if console.is_terminal:
        width = max(_LEAST_WIDTH, min(console.width, _MOST_WIDTH))
        line = textwrap.fill(printable(line), width, initial_indent=blank, subsequent_indent=blank)
        write(console, f"{line}\n")
    else:
        write(console, f"{blank}{line}\n")


def write(console: Console, text: str, style: str | None = None) -> None:
    """Print text at once. Into a pipe it goes unchanged but for control characters, tabs included."""
    if console.is_terminal:
        console.print(printable(text), style=style, markup=False, end="")
    else:
        console.file.write(printable(text))
        console.file.flush()


def print_json(value: Any) -> None:
    """Print a JSON document on one line, whatever stdout is."""
    results().file.write(
        json.dumps(
            value,
            ensure_ascii=False,
            default=lambda each: each.isoformat() if isinstance(each, datetime) else str(each),
        )
        + "\n"
    )
    results().file.flush()


def print_result(document: Any, text: str | Callable[[], None], *, as_json: bool) -> None:
    """Print the result of a command: as JSON, else as a sentence or by the function that prints it."""
    if as_json:
        print_json(document)
    elif isinstance(text, str):
        print_line(text)
    else:
        text()


def print_list[Item](
    found: Sequence[Item],
    columns: Sequence[str],
    cells: Callable[[Item], Sequence[str]],
    *,
    empty: str,
    as_json: bool,
    document: Callable[[Item], Any] = lambda item: item,
) -> None:
    """Print a list: as JSON, else as a table with the cells of each item, or the sentence for an empty list."""
    if as_json:
        print_json([document(item) for item in found])
    elif found:
        print_table(columns, map(cells, found))
    else:
        print_line(empty)


def print_fields(fields: Mapping[str, str], width: int, indent: str = "") -> None:
    """Print a line for each field that has a value; names are as wide as `width`."""
    for name, value in fields.items():
        if value:
            print_line(f"{indent}{name:<{width}} {value}")


def print_part(title: str, lines: Sequence[str]) -> None:
    """Print indented lines below their title, nothing where there are none."""
    if lines:
        print_line(title, "bold")
    for line in lines:
        print_line(f"  {line}")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows below the names of their columns."""
    write_table(results(), columns, rows)


def write_table(console: Console, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows: as a table on a terminal, else tab-separated below the column names.

    The last column of a table wraps; on a terminal that leaves it no room, the widest ones do, between words as far as
    that suffices. Nothing is cut, and no line is longer than the terminal is wide.
    """
    cells = [[" ".join(printable(cell).split()) for cell in row] for row in rows]
    if not console.is_terminal:
        for row in (columns, *cells):
            write(console, "\t".join(row) + "\n")
        return
    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=True, header_style="bold")
    for name, width in zip(columns, _widths(console.width, columns, cells), strict=True):
        table.add_column(name, width=width, overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    console.print(table, soft_wrap=False)


def _widths(room: int, columns: Sequence[str], cells: Sequence[Sequence[str]]) -> Sequence[int]:
    """Return the widths of the columns of a table; Rich's own cut characters of some."""
    widths = [max(map(cell_len, texts)) for texts in zip(columns, *cells, strict=True)]
    room -= _GAP * len(widths)
    last = room - sum(widths[:-1])
    if last >= min(_LAST_COLUMN, widths[-1]):
        return [*widths[:-1], min(last, widths[-1])]
    words = [
        max(cell_len(word) for text in texts for word in text.split() or ("",))
        for texts in zip(columns, *cells, strict=True)
    ]
    least = [*words[:-1], min(words[-1], _LAST_COLUMN // 2)] if sum(words) > room else words
    for kept in (least, [1] * len(widths)):
        while sum(widths) > room and any(width > end for width, end in zip(widths, kept, strict=True)):
            widest = max((width, at) for at, (width, end) in enumerate(zip(widths, kept, strict=True)) if width > end)
            widths[widest[1]] -= 1
    return widths


@contextlib.contextmanager
def progress(text: str) -> Generator[Callable[[str], None]]:
    """Show a status line for as long as the context lasts, on a terminal only; yield a function that changes it."""
    if not diagnostics().is_terminal:
        yield lambda _: None
        return
    with diagnostics().status(text) as status:
        yield status.update
