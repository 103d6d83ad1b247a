"""The platform's own files, which stdio servers don't see."""

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mcp_gateway.configuration.servers import StdioServer
from mcp_gateway.sessions import shim
from mcp_gateway.sessions.server_user import ServerUser

VISIBLE: Final = "stdio servers can read the platform's data folder, password and token: {}."
VISIBLE_REMEDY: Final = (
    "Allow user namespaces (sysctl kernel.unprivileged_userns_clone, or the container's seccomp profile), or run "
    "Starling with CAP_SYS_ADMIN; until then add only servers that you trust like the platform itself."
)
_PROBE: Final = "import runpy, sys; print(runpy.run_path(sys.argv[1])['hide']([]))"


@dataclass(frozen=True, slots=True)
class PrivateFiles:
    """The data folder, what of it is hidden where a server works in that folder, and who servers run as.

    Where `user` reaches what a server needs, the server runs as that user.
    """

    folder: Path
    entries: tuple[Path, ...] = ()
    user: ServerUser | None = None


NO_PRIVATE_FILES: Final = PrivateFiles(Path())


def paths_to_hide(private: PrivateFiles, used: Iterable[str]) -> list[str]:
    """Return what to hide from a server that uses these texts: its command, arguments, variables and folder."""
    if not private.entries:
        return []
    folder = os.path.realpath(private.folder)
    parts = (part for text in used for piece in text.split(os.pathsep) for part in (piece, piece.rpartition("=")[2]))
    works_there = any(Path(os.path.realpath(part)).is_relative_to(folder) for part in parts if part.startswith("/"))
    hidden = private.entries if works_there else (private.folder,)
    return [str(path) for path in hidden if path.exists()]


def user_of(private: PrivateFiles, server: StdioServer) -> ServerUser | None:
    """Return the user as whom a server runs, None where that is the platform's."""
    user = private.user if os.geteuid() == 0 else None  # no one else can change the user
    return None if user is None or user.unreached(server) else user


async def unhidden_reason() -> str:
    """Return why files can't be hidden from servers on this machine; nothing where they can."""
    if sys.platform != "linux":
        return "this system has no mount namespaces"
    command = (sys.executable, "-I", "-S", "-c", _PROBE, shim.__file__)
    probe = await asyncio.create_subprocess_exec(*command, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL)
    said, _ = await probe.communicate()
    return said.decode(errors="replace").strip() if probe.returncode == 0 else "the probe failed"
