"""Writes log lines in a thread of its own, so that a pipe without a reader blocks nothing else."""

import atexit
import logging
from collections import deque
from threading import Condition, Thread
from typing import IO, Final

LINES: Final = 10_000  # that wait at most; further ones are dropped and counted
_EXIT_SECONDS = 1.0
_log = logging.getLogger(__name__)


class LogWriter:
    """A stream for one log handler. `write` never waits; how many lines were dropped is logged once there is room."""

    def __init__(self, file: IO[str], lines: int = LINES) -> None:
        self._file = file
        self._limit = lines
        self._lines: deque[str] = deque()
        self._changed = Condition()
        self._thread: Thread | None = None
        self._dropped = 0
        self._writing = False

    def write(self, line: str) -> int:
        """Have a line written by the thread, or drop it where too many wait."""
        with self._changed:
            if len(self._lines) < self._limit:
                self._lines.append(line)
            else:
                self._dropped += 1
            self._changed.notify_all()
            if self._thread is None:  # not before: a process that forks would lose it
                self._thread = Thread(target=self._write_all, name="log-writer", daemon=True)
                self._thread.start()
                atexit.register(self.wait)
        return len(line)

    def flush(self) -> None:
        """Do nothing: the thread flushes."""

    def wait(self, seconds: float = _EXIT_SECONDS) -> None:
        """Wait until all lines are written, or for `seconds`."""
        with self._changed:
            self._changed.wait_for(lambda: not self._lines and not self._writing, seconds)

    def _write_all(self) -> None:
        while True:
            with self._changed:
                self._writing = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._lines)
                line, self._writing = self._lines.popleft(), True
                dropped, self._dropped = (self._dropped, 0) if not self._lines else (0, self._dropped)
            try:
                self._file.write(line)
                self._file.flush()
            except (OSError, ValueError):  # the pipe or the file was closed
                continue
            if dropped:
                _log.warning("%d log lines were dropped: they were not read in time", dropped)
