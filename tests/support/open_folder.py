"""Folders that every user may enter, as the embedded Postgres needs under root; in memory if there is space."""

import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_MEMORY: Final = Path("/dev/shm")
_LEAST_BYTES: Final = 2 * 2**30


@contextmanager
def new_open_folder() -> Generator[Path]:
    """Yield a new folder with a short path, removed afterwards.

    In memory a database is created in a fifteenth of the time, and no test waits for a disk that others use.
    """
    with tempfile.TemporaryDirectory(prefix="starling-", dir=_memory()) as name:
        folder = Path(name)
        folder.chmod(0o711)
        yield folder


def _memory() -> Path | None:
    if not _MEMORY.is_dir() or os.statvfs(_MEMORY).f_flag & os.ST_NOEXEC:
        return None
    return _MEMORY if shutil.disk_usage(_MEMORY).free > _LEAST_BYTES else None
