"""The user that the embedded server runs as, and child processes that end with their parent, even if it is killed.

Postgres refuses root, so root starts it as another user.
"""

import ctypes
import os
import pwd
import signal
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypedDict

from starling.core.errors import ConfigurationError

_SERVICE_USERS = ("nobody", "daemon")
_ROOT_HOME = Path("/var/lib/starling")


class PopenUser(TypedDict, total=False):
    """The arguments that make a child process run as another user."""

    user: int
    group: int
    extra_groups: list[int]


@dataclass(frozen=True, slots=True)
class Account:
    """The user and group of the server's processes and data."""

    uid: int
    gid: int
    is_self: bool

    @property
    def popen(self) -> PopenUser:
        return {} if self.is_self else {"user": self.uid, "group": self.gid, "extra_groups": []}

    def can_reach(self, path: Path) -> bool:
        """Whether the account may enter `path` (a folder, or what exists of it) and all folders above it."""
        if self.is_self:
            return True
        existing = next(folder for folder in (path, *path.parents) if folder.exists())
        return all(folder.stat().st_mode & stat.S_IXOTH for folder in (existing, *existing.parents))

    def make_folder(self, path: Path) -> None:
        """Create a folder that belongs to the account alone, or check that an existing one does."""
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            pass
        else:
            if not self.is_self:
                os.chown(path, self.uid, self.gid)
        _check_owner(path, self.uid)


def service_account() -> Account:
    """Return the current user, or for root the user that Postgres runs as."""
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid(), is_self=True)
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    for name in _SERVICE_USERS:
        if name in known:
            return Account(known[name].pw_uid, known[name].pw_gid, is_self=False)
    raise ConfigurationError(
        f"Postgres doesn't run as root, and none of the users {', '.join(_SERVICE_USERS)} exists.",
        "Start as another user, or set DATABASE_URL.",
    )


def root_home() -> Path:
    """Return root's folder for files that the service user must reach, outside of root's private folders."""
    claim_folder(_ROOT_HOME, 0o711)
    return _ROOT_HOME


def claim_folder(path: Path, mode: int) -> None:
    """Create a folder of this user's, or check an existing one: no link, not another user's; then set its mode."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_owner(path, os.geteuid())
        path.chmod(mode)
    except OSError as error:
        raise ConfigurationError(
            f"The folder {path} can't be made for the embedded Postgres: {error.strerror}.",
            "Choose another STARLING_DATA_DIR, start as another user, or set DATABASE_URL.",
        ) from None


def _check_owner(path: Path, uid: int) -> None:
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != uid:
        raise ConfigurationError(
            f"{path} isn't a folder of user id {uid}.",
            "Move it away, choose another STARLING_DATA_DIR, or set DATABASE_URL.",
        )


_PR_SET_PDEATHSIG = 1


def die_with_parent(by: signal.Signals) -> Callable[[], None] | None:
    """Return a `preexec_fn` that sends the child the signal `by` when this process ends; None except on Linux.

    It runs after a change of user, which would clear the setting. Linux sends the signal when the thread that
    started the child ends.
    """
    if sys.platform != "linux":
        return None
    return partial(end_with, os.getpid(), by, ctypes.CDLL(None).prctl)


def end_with(parent: int, by: signal.Signals, prctl: Callable[..., object] | None = None) -> None:
    """Have the kernel send this process the signal `by` when its parent ends; exit if it has ended already."""
    if sys.platform == "linux":
        (prctl or ctypes.CDLL(None).prctl)(_PR_SET_PDEATHSIG, int(by), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
