"""The user as whom stdio servers run, where it reaches what they need."""

import os
import pwd
import shutil
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from mcp_gateway.configuration.servers import StdioServer
from starling.core.errors import ConfigurationError

_SHEBANG_BYTES: Final = 256
_REMEDY: Final = "Make a user for servers (`useradd --system --create-home NAME`) and name it in STARLING_SERVER_USER."


@dataclass(frozen=True, slots=True)
class ServerUser:
    """A user of the machine, with its groups."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str

    @classmethod
    def of(cls, name: str) -> Self:
        """Return a user by name or number. Raises ConfigurationError for one that isn't there, and for root."""
        try:
            found = pwd.getpwuid(int(name)) if name.isdecimal() else pwd.getpwnam(name)
        except KeyError:
            raise ConfigurationError(f"The user {name!r} for servers isn't known on this machine.", _REMEDY) from None
        if found.pw_uid == 0:
            raise ConfigurationError("The user for servers must not be root.", _REMEDY)
        groups = tuple(os.getgrouplist(found.pw_name, found.pw_gid))
        return cls(found.pw_name, found.pw_uid, found.pw_gid, groups, found.pw_dir)

    def unreached(self, server: StdioServer) -> str:
        """Return the first file or folder that a server needs and this user can't reach, empty without one.

        Judged by owners and modes: the command with its interpreter, the working folder, and files and folders that
        arguments name.
        """
        for path in _needed(server):
            if not self._reaches(path):
                return str(path)
        return ""

    def environment(self, server: StdioServer) -> dict[str, str]:
        """Return a server's variables, with this user's name, and its home in place of one that it can't reach."""
        home = server.env.get("HOME", "")
        home = home if home and self._reaches(Path(home)) else self.home
        return server.env | {"HOME": home, "LOGNAME": self.name, "USER": self.name}

    def _reaches(self, path: Path) -> bool:
        try:
            is_run = bool(path.stat().st_mode & 0o111)  # a folder or a program
            wanted = stat.S_IROTH | stat.S_IXOTH if is_run else stat.S_IROTH
            return all(self._has(folder, stat.S_IXOTH) for folder in path.parents) and self._has(path, wanted)
        except OSError:
            return False

    def _has(self, path: Path, wanted: int) -> bool:
        found = path.stat()
        if found.st_uid == self.uid:
            wanted <<= 6
        elif found.st_gid in self.groups:
            wanted <<= 3
        return found.st_mode & wanted == wanted


def _needed(server: StdioServer) -> Iterable[Path]:
    folder = Path(server.cwd or "").absolute()
    command = server.command if os.sep not in server.command else str(folder / server.command)
    found = shutil.which(command, path=server.env.get("PATH"))
    named = (part for text in server.args for part in (text, text.partition("=")[2]) if part.startswith("/"))
    for path in (folder, *(_with_interpreters(Path(found)) if found else ()), *map(Path, named)):
        if path.exists():
            yield from (path.absolute(), path.resolve())


def _with_interpreters(command: Path) -> Iterable[Path]:
    yield command
    with command.open("rb") as file:
        first = file.read(_SHEBANG_BYTES).partition(b"\n")[0]
    words = first.removeprefix(b"#!").decode(errors="replace").split() if first.startswith(b"#!") else []
    for word in words:
        if (interpreter := shutil.which(word)) is not None:  # also the one that `env` looks for
            yield Path(interpreter)
