"""Writes log lines in a thread of its own, so that a pipe without a reader blocks nothing else."""

import atexit
import logging
from queue import Full, Queue
from threading import Thread
from typing import IO, Final

LINES: Final = 10_000  # that wait at most; further ones are dropped and counted
_EXIT_SECONDS = 1.0
_log = logging.getLogger(__name__)


class LogWriter:
    """A stream for one log handler. `write` never waits; how many lines were dropped is logged once there is room."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._lines: Queue[str] = Queue(LINES)
        self._thread: Thread | None = None
        self._dropped = 0

    def write(self, line: str) -> int:
        """Have a line written by the thread, or drop it where too many wait."""
        try:
            self._lines.put_nowait(line)
        except Full:
            self._dropped += 1
        if self._thread is None:  # not before: a process that forks would lose it
            self._thread = Thread(target=self._write_all, name="log-writer", daemon=True)
            self._thread.start()
            atexit.register(self.wait)
        return len(line)

    def flush(self) -> None:
        """Do nothing: the thread flushes."""

    def wait(self) -> None:
        """Wait until all lines are written, or for a second."""
        with self._lines.all_tasks_done:
            self._lines.all_tasks_done.wait_for(lambda: not self._lines.unfinished_tasks, _EXIT_SECONDS)

    def _write_all(self) -> None:
        while True:
            line = self._lines.get()
            try:
                self._file.write(line)
                self._file.flush()
            except (OSError, ValueError):  # the pipe or the file was closed
                pass
            finally:
                self._lines.task_done()
            if self._dropped and self._lines.empty():
                dropped, self._dropped = self._dropped, 0
                _log.warning("%d log lines were dropped: they were not read in time", dropped)
