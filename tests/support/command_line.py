"""The `starling` command as a user runs it: processes with an environment of their own.

A command is a fork of the command server, unless a test asks for the installed program.
"""

import json
import os
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psutil

from tests.support.command_server import Command, command_server
from tests.support.local_access import admin_headers
from tests.support.open_folder import new_open_folder

type Process = subprocess.Popen[str] | Command

STARLING = Path(sys.executable).with_name("starling")
_SECONDS = 120
_KEPT = ("PATH", "LANG", "TMPDIR", "PYTHONPATH")


@dataclass(frozen=True)
class CliWorkspace:
    """A folder that commands run in, and what they find in their environment besides the usual."""

    folder: Path
    variables: Mapping[str, str]

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        here = {"HOME": str(self.folder), "STARLING_DATA_DIR": str(self.folder / "data"), "LOG_LEVEL": "WARNING"}
        model = {"STARLING_MODEL": "offline:rules", "COLUMNS": "200"}
        return kept | here | model | dict(self.variables)

    @property
    def admin_headers(self) -> dict[str, str]:
        """What makes requests to a platform of this folder those of an admin."""
        return admin_headers(self.folder / "data")

    def starling(self, *arguments: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return command_server().run(
            arguments, folder=self.folder, environment=self.environment, stdin=stdin, seconds=_SECONDS
        )

    def json(self, *arguments: str | Path) -> Any:
        """Run a command of a group that succeeds and return what it printed as JSON."""
        done = self.starling(*arguments[:2], "--json", *arguments[2:])
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    @contextmanager
    def started(self, *arguments: str | Path, installed: bool = False) -> Generator[Process]:
        """Run a command, or with `installed` the installed program, while the block lasts; its end is a SIGTERM."""
        with (
            self._installed(arguments)
            if installed
            else command_server().start(arguments, folder=self.folder, environment=self.environment)
        ) as process:
            try:
                yield process
            finally:
                process.terminate()

    @contextmanager
    def running(self, *arguments: str | Path, installed: bool = False) -> Generator["Service"]:
        """Run a service until the block ends, from the moment when it reports that it is ready."""
        with self.started(*arguments, "--json", installed=installed) as process:
            yield Service.ready(process)

    def _installed(self, arguments: Sequence[str | Path]) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [STARLING, *arguments], stdout=pipe, stderr=pipe, text=True, cwd=self.folder, env=self.environment
        )


@dataclass(frozen=True)
class Service:
    """A service that is ready, and what it said about itself."""

    process: Process
    said: Mapping[str, Any]

    @classmethod
    def ready(cls, process: Process) -> Self:
        """Wait until a service that was started with `--json` says that it is ready."""
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        assert line, process.stderr.read()
        return cls(process, json.loads(line))

    @property
    def url(self) -> str:
        return str(self.said["address"])

    def stopped_by(self, number: int) -> tuple[int, list[psutil.Process]]:
        """Send a signal; return the exit code, and which processes of the service outlived it."""
        family = psutil.Process(self.process.pid).children(recursive=True)
        self.process.send_signal(number)
        code = self.process.wait(_SECONDS)
        return code, psutil.wait_procs(family, timeout=60)[1]


@contextmanager
def new_workspace(**variables: str) -> Generator[CliWorkspace]:
    """Yield a workspace in a new folder."""
    with new_open_folder() as folder:
        yield CliWorkspace(folder, variables)


def server_file(workspace: CliWorkspace, **servers: Mapping[str, Any]) -> Path:
    """Write an `mcpServers` file into a home."""
    file = workspace.folder / "servers.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    return file


SYSTEM_HEALTH = {
    "command": sys.executable,
    "args": ["-m", "mcp_gateway.servers.system_health"],
    "x-starling": {"effect": "read"},
}
