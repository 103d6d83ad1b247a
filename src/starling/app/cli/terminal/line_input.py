"""Lines that a person types at a terminal."""

import os
import select
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TextIO

_READ_BYTES = 64


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
