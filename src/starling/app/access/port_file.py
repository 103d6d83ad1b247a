"""The port file: where a running platform writes its address, so that commands on the same data folder find it.

Each process that serves the API has a file of its own in the folder `api` of the data folder and holds a lock on it.
The lock ends with the process, however it ends: a file without a lock is out of date, and the next reader removes it.
The name of a file is random: process ids are the same in several containers that share a data folder.
"""

import contextlib
import fcntl
import json
import logging
import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from uuid import uuid4

PROTOCOL: Final = 1  # of the routes that commands use: commands of another version read the database instead
_FOLDER: Final = "api"
_ANY_ADDRESS: Final = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - to recognise it
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunningPlatform:
    """A process that serves the API on this machine.

    `database` is the `database_name` of its database. `keyless` says that commands on this machine need no key.
    """

    address: str
    version: str
    pid: int
    database: str
    keyless: bool
    protocol: int = PROTOCOL


@contextmanager
def published(data_dir: Path, platform: RunningPlatform) -> Generator[None]:
    """Publish the platform for as long as the context lasts.

    A folder that can't be written to is logged: commands then need STARLING_URL.
    """
    file = _folder(data_dir) / f"{uuid4().hex}.json"
    try:
        descriptor = _written(file, platform)
    except OSError as error:
        _log.warning("The address can't be written to %s: %s. Commands find it by STARLING_URL.", file, error.strerror)
        yield
        return
    try:
        yield
    finally:
        file.unlink(missing_ok=True)
        os.close(descriptor)


def find_platform(data_dir: Path, database: str | None = None) -> RunningPlatform | None:
    """Return the platform that runs on `data_dir`, the one that started last; None if there is none.

    With `database` only one that uses it.
    """
    found = [entry for file in _folder(data_dir).glob("*.json") if (entry := _read(file)) is not None]
    for _, platform in sorted(found, key=lambda entry: entry[0], reverse=True):
        if platform.protocol == PROTOCOL and database in (None, platform.database):
            return platform
    return None


def local_address(address: str) -> str:
    """Return the address at which this machine reaches a server that listens on all its addresses."""
    parts = urlsplit(address)
    here = _ANY_ADDRESS.get(parts.hostname or "")
    return f"{parts.scheme}://{here}:{parts.port}" if here else address


def _folder(data_dir: Path) -> Path:
    return data_dir.expanduser().absolute() / _FOLDER


def _written(file: Path, platform: RunningPlatform) -> int:
    """Write the file in one step and return its descriptor, which holds the lock."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = file.with_suffix(".new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(descriptor, json.dumps(asdict(platform)).encode())
        draft.replace(file)
    except OSError:
        os.close(descriptor)
        draft.unlink(missing_ok=True)
        raise
    return descriptor


def _read(file: Path) -> tuple[float, RunningPlatform] | None:
    """Return when the file was written and its content; remove it and return None if it is out of date."""
    try:
        with file.open("rb") as opened:
            try:
                fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:  # its process runs
                return os.fstat(opened.fileno()).st_mtime, RunningPlatform(**json.load(opened))
            with contextlib.suppress(OSError):
                file.unlink()
    except (OSError, ValueError, TypeError):  # gone, not ours to read, or of another version
        pass
    return None
