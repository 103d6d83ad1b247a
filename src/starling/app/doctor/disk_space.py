"""Room for what is stored here."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from starling.app.doctor.finding import Finding, ok
from starling.core.settings import Settings

_GIB = 2**30
_TIGHT, _LITTLE = 1 * _GIB, 5 * _GIB


async def check(settings: Settings) -> Sequence[Finding]:
    """Find how much room the data folder has; nothing is stored in it where DATABASE_URL names the database."""
    if settings.database_url is not None:
        return []
    folder = _existing(settings.data_dir)
    return [finding(settings.data_dir, shutil.disk_usage(folder).free)]


def finding(folder: Path, free: int) -> Finding:
    """Return what there is to say about so many free bytes."""
    said = f"{free / _GIB:.1f} GiB are free for the data in {folder}."
    if free >= _LITTLE:
        return ok("disk", said)
    remedy = "Make room, or name another folder with STARLING_DATA_DIR."
    return Finding("disk", "problem" if free < _TIGHT else "warning", said, remedy)


def _existing(folder: Path) -> Path:
    """Return the folder, or where it will be made."""
    folder = folder.absolute()
    return next(place for place in (folder, *folder.parents) if place.exists())
