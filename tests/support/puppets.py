"""Servers that do what a test says, as an attacker would have them: the test's side of `mcp_servers/puppet.py`."""

import contextlib
import json
import queue
import socket
import sys
import threading
from collections.abc import Generator
from dataclasses import dataclass, field
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Final

from tests.support.gateway_harness import SERVERS

_SECONDS: Final = 60


@dataclass
class Puppet:
    """One process of a server: `puppet("read_memory", [1])` calls that function there."""

    pid: int
    lines: TextIOWrapper

    def __call__(self, function: str, *arguments: Any) -> Any:
        """Return what the function returned. Raises ValueError once the process has ended."""
        self.lines.write(json.dumps([function, arguments]) + "\n")
        self.lines.flush()
        return json.loads(self.lines.readline())


@dataclass
class Puppets:
    """The puppets that connected to a listening socket, by name: the first process of each."""

    listening: socket.socket
    _new: queue.SimpleQueue[tuple[str, Puppet]] = field(default_factory=queue.SimpleQueue[tuple[str, Puppet]])
    _found: dict[str, Puppet] = field(default_factory=dict[str, Puppet])

    @classmethod
    @contextlib.contextmanager
    def listening_for(cls) -> Generator["Puppets"]:
        """Listen for puppets until the block ends."""
        with socket.create_server(("127.0.0.1", 0)) as listening:
            puppets = cls(listening)
            threading.Thread(target=puppets._accept, daemon=True).start()
            yield puppets
            listening.shutdown(socket.SHUT_RDWR)
            for puppet in puppets._found.values():
                with contextlib.suppress(OSError):
                    puppet.lines.close()

    def server(self, name: str, python: str = sys.executable, script: Path = SERVERS / "puppet.py") -> dict[str, Any]:
        """Return the entry of a puppet under `mcpServers`."""
        return {"command": python, "args": [str(script), name, str(self.listening.getsockname()[1])]}

    def called(self, name: str) -> Puppet:
        """Return a puppet once its tool was called, each call once. `puppet("pay")` has the call answered."""
        while name not in self._found:
            found, puppet = self._new.get(timeout=_SECONDS)
            self._found[found] = puppet
        assert self._found[name]("called")
        return self._found[name]

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                with self.listening.accept()[0] as connection:
                    lines = connection.makefile("rw")
                name, pid = json.loads(lines.readline())
                self._new.put((name, Puppet(pid, lines)))
