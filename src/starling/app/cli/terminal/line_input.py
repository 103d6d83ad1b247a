"""What a person types at a terminal: lines, and whether something is to be done."""

import os
import select
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TextIO

import typer

from starling.app.cli.terminal.output import diagnostics, results, write

_READ_BYTES = 64


def has_person() -> bool:
    """Return whether a person can be asked: standard input and output are a terminal."""
    return sys.stdin.isatty() and results().is_terminal


def confirmed(question: str, *, yes: bool, quiet: bool, otherwise: str) -> bool:
    """Return whether something is to be done: with `yes`, or where a person at a terminal says so.

    Where nobody can be asked, `otherwise` is printed on stderr; with `quiet` nobody is asked and nothing is printed.
    """
    if yes or quiet:
        return yes
    if not (sys.stdin.isatty() and diagnostics().is_terminal):
        write(diagnostics(), f"{otherwise}\n")
        return False
    try:
        return typer.confirm(question, err=True)
    except typer.Abort:  # Ctrl-D
        return False


def read_line(prompt: str, *, typed: TextIO | None = None) -> str:
    """Show a prompt and return the line that is typed, without its end. Raises EOFError for Ctrl-D.

    Call it in the main thread. A signal runs its handler at once, whenever it comes. `input` misses one that comes
    between its prompt and its read: that read isn't interrupted, and the handler runs after the next line only.
    """
    source: TextIO = typed or sys.stdin
    sys.stdout.write(prompt)
    sys.stdout.flush()
    with _signal_bytes() as signalled:
        while source not in select.select([source, signalled], [], [])[0]:
            os.read(signalled, _READ_BYTES)
    line = source.readline()
    if not line:
        raise EOFError
    return line.removesuffix("\n")


@contextmanager
def _signal_bytes() -> Generator[int]:
    """Yield a descriptor that can be read once a signal has come, be it before `select` waits for it."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield reading
    finally:
        signal.set_wakeup_fd(before)
        os.close(reading)
        os.close(writing)
