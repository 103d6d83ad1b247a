"""Free disk space of the data folder."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from starling.app.doctor.finding import Diagnostic, ok
from starling.core.settings.schema import Settings

_GIB = 2**30
_TIGHT, _LITTLE = 1 * _GIB, 5 * _GIB


async def check(settings: Settings) -> Sequence[Diagnostic]:
    """Return the free space of the data folder; nothing with DATABASE_URL, which makes it unused."""
    if settings.database_url is not None:
        return []
    folder = settings.data_dir.absolute()
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    return [finding(settings.data_dir, shutil.disk_usage(existing).free)]


def finding(folder: Path, free: int) -> Diagnostic:
    """Return the finding for a number of free bytes."""
    said = f"{free / _GIB:.1f} GiB are free for the data in {folder}."
    if free >= _LITTLE:
        return ok("disk", said)
    remedy = "Free some space, or set STARLING_DATA_DIR to another folder."
    return Diagnostic("disk", "problem" if free < _TIGHT else "warning", said, remedy)
