"""What the interpreter does to files, programs, sockets and code while a test watches."""

import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from typing import Any

_WATCHED = ("compile", "ctypes", "exec", "ftplib", "glob", "import", "open", "os.", "pty", "shutil", "socket",
            "sqlite3", "subprocess", "tempfile", "urllib", "webbrowser")  # fmt: skip
_seen: dict[int, list[str]] = {}  # by the id of the thread that watches itself


@contextmanager
def watched() -> Generator[list[str]]:
    """Yield the list of audit events of this thread that touch files, programs, sockets or code; the block fills it."""
    _install()
    own = threading.get_ident()
    _seen[own] = []
    try:
        yield _seen[own]
    finally:
        del _seen[own]


@cache
def _install() -> None:
    """Add the hook, once: an audit hook can't be removed."""
    sys.addaudithook(_hook)


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _seen and (seen := _seen.get(threading.get_ident())) is not None and event.startswith(_WATCHED):
        seen.append(f"{event} {arguments!r:.200}")
