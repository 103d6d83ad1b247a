"""What keeps stdio servers from each other, and from the platform's processes and files, on this machine."""

import asyncio
import os
import pwd
import shutil
import stat
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, Literal, Self

import starling.core
from mcp_gateway.configuration.servers import ServerConfig, StdioServer
from mcp_gateway.configuration.variable_expansion import resolve
from mcp_gateway.sessions import shim
from starling.core.errors import ConfigurationError, ServerUnavailableError

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


VISIBLE: Final = "{} can read the platform's data folder, password and token, and write its files: {}."
VISIBLE_REMEDY: Final = (
    "Allow user namespaces (sysctl kernel.unprivileged_userns_clone, or the container's seccomp profile), or run "
    "Starling with CAP_SYS_ADMIN; until then add only servers that you trust like the platform itself."
)
NOT_APART: Final = {
    "signals": "{} can end each other{} by signals: {}.",
    "none": "{} can read each other's variables, answer each other's calls and end each other{}: {}.",
}
NOT_APART_REMEDY: Final = (
    "Use Linux 6.12 or later with Landlock, on x86-64 or ARM64 and allowed by the container's seccomp profile, or run "
    "servers that have secrets in containers of their own and name their `url`."
)
_PROBE: Final = """
import runpy, sys
shim = runpy.run_path(sys.argv[1])
print(shim["hide"]([], [sys.argv[1]]), *shim["set_apart"](), sep="\\n")"""


@dataclass(frozen=True, slots=True)
class PrivateFiles:
    """The data folder, what of it is hidden where a server works in that folder, and who servers run as.

    Where `user` reaches what a server needs, the server runs as that user. No server can write what is `read_only`.
    """

    folder: Path
    entries: tuple[Path, ...] = ()
    user: ServerUser | None = None
    read_only: tuple[Path, ...] = ()


NO_PRIVATE_FILES: Final = PrivateFiles(Path())


def installed_files() -> tuple[Path, ...]:
    """Return what the platform's programs consist of: interpreter, library, environment, source, migrations."""
    source = Path(starling.core.__file__).parents[2]
    environment = (Path(sys.prefix),) if sys.prefix != sys.base_prefix else ()
    return Path(sys.executable), Path(os.__file__).parent, *environment, source, source.with_name("migrations")


def paths_to_hide(private: PrivateFiles, used: Iterable[str]) -> list[str]:
    """Return what to hide from a server that uses these texts: its command, arguments, variables and folder."""
    if not private.entries:
        return []
    folder = os.path.realpath(private.folder)
    parts = (part for text in used for piece in text.split(os.pathsep) for part in (piece, piece.rpartition("=")[2]))
    works_there = any(Path(os.path.realpath(part)).is_relative_to(folder) for part in parts if part.startswith("/"))
    hidden = private.entries if works_there else (private.folder,)
    return [os.path.realpath(path) for path in hidden if path.exists()]


def user_of(private: PrivateFiles, server: StdioServer) -> ServerUser | None:
    """Return the user as whom a server runs, None where that is the platform's."""
    user = private.user if os.geteuid() == 0 else None  # no one else can change the user
    return None if user is None or user.unreached(server) else user


type ProcessIsolation = Literal["apart", "signals", "none"]
type FileIsolation = Literal["own_user", "mount_namespace", "none"]


@dataclass(frozen=True, slots=True)
class Isolation:
    """What keeps a stdio server from other processes, and from the platform's files, on the machine that answers.

    `signals`: it can end other processes of its user. `none`: it can read them, too, also those of other servers.
    """

    processes: ProcessIsolation
    files: FileIsolation


@dataclass(frozen=True, slots=True)
class MachineIsolation:
    """What this machine can keep servers from, with the reasons why it isn't more."""

    processes: ProcessIsolation
    processes_reason: str
    files_reason: str


async def machine_isolation() -> MachineIsolation:
    """Try in a process of its own what is done at each start of a server."""
    if sys.platform != "linux":
        return MachineIsolation("none", "this system has no Landlock", "this system has no mount namespaces")
    command = (sys.executable, "-I", "-S", "-c", _PROBE, shim.__file__)
    probe = await asyncio.create_subprocess_exec(*command, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL)
    said, _ = await probe.communicate()
    match said.decode(errors="replace").splitlines():
        case [files_reason, ("apart" | "signals" | "none") as processes, processes_reason]:
            return MachineIsolation(processes, processes_reason, files_reason)
        case _:
            return MachineIsolation("none", "the probe failed", "the probe failed")


class ServerIsolation:
    """Tells what keeps servers from other processes and the platform's files; the machine is asked once."""

    def __init__(self, private: PrivateFiles, environment: Mapping[str, str]) -> None:
        self._private = private
        self._environment = environment

    async def of(self, name: str, config: ServerConfig) -> Isolation | None:
        """Return what isolates a server on this machine, None for a remote one."""
        if not isinstance(config, StdioServer):
            return None
        resolved, machine = self._resolved(name, config), await self.machine()
        if resolved is not None and user_of(self._private, resolved) is not None:
            return Isolation(machine.processes, "own_user")
        return Isolation(machine.processes, "none" if machine.files_reason else "mount_namespace")

    def unreached(self, name: str, config: ServerConfig) -> str:
        """Return the file or folder because of which a server doesn't run as the servers' user, empty without one."""
        resolved = self._resolved(name, config)
        return self._private.user.unreached(resolved) if self._private.user and resolved else ""

    async def machine(self) -> MachineIsolation:
        """Return what this machine can keep servers from."""
        return await asyncio.shield(self._machine)

    @cached_property
    def _machine(self) -> asyncio.Task[MachineIsolation]:
        return asyncio.get_running_loop().create_task(machine_isolation(), name="probe of the machine's isolation")

    def _resolved(self, name: str, config: ServerConfig) -> StdioServer | None:
        try:
            found = resolve(name, config, self._environment).config
        except ServerUnavailableError:  # a variable that isn't set: it can't start either
            return None
        return found if isinstance(found, StdioServer) else None
