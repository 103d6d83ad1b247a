"""The local token: a file of the data folder whose content makes a request of this machine that of an admin.

Commands on the data folder read it by themselves. Whoever can read it can read the database's password beside it too.
"""

import contextlib
import fcntl
import logging
import os
import secrets
import stat
from collections.abc import Generator
from pathlib import Path
from typing import Final
from uuid import uuid4

PREFIX: Final = "starling-local-"
_FILE: Final = "token"
_SECRET_BYTES: Final = 32
_MODE: Final = 0o600
_log = logging.getLogger(__name__)


def local_token(data_dir: Path) -> str:
    """Return the token of a data folder, made if there is none; empty where it can't be kept to its owner.

    A file that others could read is replaced.
    """
    file = token_file(data_dir)
    if found := read_token(data_dir):
        return found
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(file.parent):
            if found := read_token(data_dir):  # another process has written one meanwhile
                return found
            if file.exists():
                _log.warning("%s is replaced: other users could read it, or it does not hold a token.", file)
            draft = file.with_name(f".token.{uuid4().hex}.new")  # process ids are the same in several containers
            try:
                with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE), "w") as opened:
                    opened.write(f"{PREFIX}{secrets.token_urlsafe(_SECRET_BYTES)}\n")
                draft.replace(file)
            finally:
                draft.unlink(missing_ok=True)
    except OSError as error:
        _log.warning("%s can't be written: %s. Admins need a key, also on this machine.", file, error.strerror)
    return read_token(data_dir)


def read_token(data_dir: Path) -> str:
    """Return the token of a data folder; empty where there is none that only its owner can read."""
    try:
        with token_file(data_dir).open("rb") as opened:
            state = os.fstat(opened.fileno())
            if stat.S_IMODE(state.st_mode) != _MODE or os.geteuid() not in (0, state.st_uid):
                return ""
            text = opened.read(200).decode("ascii", "replace").strip()
    except OSError:
        return ""
    return text if text.startswith(PREFIX) else ""


def token_file(data_dir: Path) -> Path:
    """Return where the token of a data folder is."""
    return data_dir.expanduser().absolute() / _FILE


@contextlib.contextmanager
def _locked(folder: Path) -> Generator[None]:
    """Keep other processes from writing a token: one that is replaced after it was read would count no longer."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
