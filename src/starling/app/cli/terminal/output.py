"""Terminal output: results on stdout, everything else on stderr."""

import contextlib
import json
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

_LEAST_WIDTH, _MOST_WIDTH = 30, 110  # of paragraphs
_GAP, _LAST_COLUMN = 2, 15  # characters between columns, and what the last one has at least
# Separators of lines, changes of the direction of writing, and what is invisible: they hide or reorder what is shown.
_DECEIVING = (*range(0x2028, 0x202F), *range(0x2066, 0x2070), *range(0xFFF9, 0xFFFC), *range(0xE0000, 0xE0080))
_REPLACED = dict.fromkeys([*range(32), *range(127, 160), *_DECEIVING], "\N{REPLACEMENT CHARACTER}")
_CONTROLS = _REPLACED | {9: "\t", 10: "\n", 13: ""}
_ESCAPED = {code: json.dumps(chr(code))[1:-1] for code in (*range(128, 160), 0x61C, 0x200E, 0x200F, *_DECEIVING)}


@cache
def results() -> Console:
    """Return the console for results; without a terminal it prints plain lines of any length."""
    return Console(highlight=False, soft_wrap=True, markup=False, emoji=False)


@cache
def diagnostics() -> Console:
    """Return the console for progress, logs and hints."""
    return Console(highlight=False, soft_wrap=True, markup=False, emoji=False, stderr=True)


def printable(text: str) -> str:
    """Return text without characters that could control the terminal, or hide or reorder what it shows."""
    return text.translate(_CONTROLS)


def escaped(text: str) -> str:
    """Return JSON text with escapes in place of characters that could control a terminal or reorder what it shows."""
    return text.translate(_ESCAPED)


def json_text(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON that shows on a terminal as it is; moments and other values are texts."""
    text = json.dumps(
        value, ensure_ascii=False, indent=indent, default=lambda at: getattr(at, "isoformat", at.__str__)()
    )
    return escaped(text)


def print_line(text: str = "", style: str | None = None) -> None:
    """Print one line as it is, with no markup read into it."""
    write(results(), f"{text}\n", style)


def print_note(text: str) -> None:
    """Print a line on stderr, beside the output."""
    write(diagnostics(), f"{text}\n")


def print_paragraph(text: str, indent: int = 2) -> None:
    """Print indented text: wrapped between words on a terminal, one line in a pipe."""
    write(results(), f"{' ' * indent}{' '.join(text.split())}\n", width=_MOST_WIDTH)


def write(console: Console, text: str, style: str | None = None, width: int = sys.maxsize) -> None:
    """Print text at once: on a terminal in lines that end between words, in a pipe as it is, without control codes."""
    if console.is_terminal:
        lines = (part for line in printable(text).split("\n") for part in _fitting(line, console, width))
        console.print(Text("\n".join(lines), style or ""), end="")
    else:
        console.file.write(printable(text))
        console.file.flush()


def _fitting(line: str, console: Console, width: int) -> Iterator[str]:
    """Yield a line in parts that fit the terminal, each with its indentation; words that are longer are broken."""
    line = line.expandtabs()
    body = line.lstrip(" ")
    indent = line[: len(line) - len(body)]
    room = max(_LEAST_WIDTH, min(console.width, width) - len(indent))
    yield from (f"{indent}{part.plain}" for part in Text(body).wrap(console, room))


def print_json(value: Any) -> None:
    """Print a JSON document on one line, whatever stdout is."""
    results().file.write(f"{json_text(value)}\n")
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

    The last column of a table wraps; on a terminal that leaves it no room, the widest ones do. Nothing is cut, and no
    line is longer than the terminal is wide.
    """
    cells = [[" ".join(printable(cell).split()) for cell in row] for row in rows]
    if not console.is_terminal:
        for row in (columns, *cells):
            write(console, "\t".join(row) + "\n")
        return
    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=True, header_style="bold")
    widths = [max(map(cell_len, texts)) for texts in zip(columns, *cells, strict=True)]
    is_wide = sum(widths[:-1]) + _GAP * len(widths) + _LAST_COLUMN <= console.width
    for name in columns:
        table.add_column(name, overflow="fold", no_wrap=is_wide and name != columns[-1])
    for row in cells:
        table.add_row(*map(Text, row))
    console.print(table, soft_wrap=False)


@contextlib.contextmanager
def progress(text: str) -> Generator[Callable[[str], None]]:
    """Show a status line for as long as the context lasts, on a terminal only; yield a function that changes it."""
    if not diagnostics().is_terminal:
        yield lambda _: None
        return
    with diagnostics().status(Text(text)) as status:
        yield lambda changed: status.update(Text(changed))
