"""A command on a terminal of its own: what it shows can be waited for, and lines can be typed."""

import fcntl
import os
import pty
import re
import select
import struct
import termios
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.support.command_line import CliWorkspace
from tests.support.command_server import Command, command_server

_SECONDS = 60
_CODES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


@dataclass(slots=True)
class Terminal:
    """A process whose input and output are a terminal; `shown` is all that it showed, without control codes."""

    process: Command
    descriptor: int
    raw: bytes = b""

    @classmethod
    @contextmanager
    def running(cls, workspace: CliWorkspace, *arguments: str | Path, width: int = 100) -> Generator[Self]:
        """Run a command until the block ends, then kill what is left of it."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
        kept = {name: value for name, value in workspace.environment.items() if name != "COLUMNS"}
        with command_server().start_on_terminal(
            arguments, theirs, folder=workspace.folder, environment=kept | {"TERM": "xterm"}
        ) as process:
            try:
                yield cls(process, ours)
            finally:
                process.kill()
                os.close(ours)

    @property
    def shown(self) -> str:
        return _CODES.sub("", self.raw.decode(errors="replace")).replace("\r\n", "\n")

    def until(self, text: str) -> str:
        """Wait until the text was shown; return all that was shown."""
        deadline = time.monotonic() + _SECONDS
        while text not in self.shown:
            assert self._read(deadline), f"it ended before it showed {text!r}:\n{self.shown}"
        return self.shown

    def type(self, text: str) -> None:
        os.write(self.descriptor, text.encode())

    def end(self) -> int:
        """Wait for the end of the process and return its exit code."""
        deadline = time.monotonic() + _SECONDS
        while self._read(deadline):
            pass
        return self.process.wait(_SECONDS)

    def _read(self, deadline: float) -> bool:
        """Read what there is; return False at the end."""
        ready = select.select([self.descriptor], [], [], max(0, deadline - time.monotonic()))[0]
        assert ready, f"it neither ended nor showed more within {_SECONDS} s:\n{self.shown}"
        try:
            content = os.read(self.descriptor, 65536)
        except OSError:  # the process has closed the terminal
            return False
        self.raw += content
        return bool(content)
