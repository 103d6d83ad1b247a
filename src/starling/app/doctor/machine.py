"""This machine: the running Python, free disk space, and the agent runtimes that are installed."""

import platform
import shutil
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from starling.core.diagnostics import Diagnostic, ok
from starling.core.settings.schema import Settings

_GIB: Final = 2**30
_TIGHT, _LITTLE = 1 * _GIB, 5 * _GIB
_NO_CREWAI: Final = (
    "native; CrewAI is not installed, so agents that ask for it are executed by the native runtime, with a warning. "
    "`starling-swarm[crewai]` adds it, with 60 packages of 730 MB."
)


async def check_python(_: Settings) -> Sequence[Diagnostic]:
    """Return which Python runs; an older one than 3.12 can't even import this."""
    return [ok("python", f"Python {platform.python_version()} at {sys.executable}.")]


async def check_disk(settings: Settings) -> Sequence[Diagnostic]:
    """Return the free space of the data folder; nothing with DATABASE_URL, which makes it unused."""
    if settings.database_url is not None:
        return []
    folder = settings.data_dir.absolute()
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    return [disk_finding(settings.data_dir, shutil.disk_usage(existing).free)]


def disk_finding(folder: Path, free: int) -> Diagnostic:
    """Return the finding for a number of free bytes."""
    said = f"{free / _GIB:.1f} GiB are free for the data in {folder}."
    if free >= _LITTLE:
        return ok("disk", said)
    remedy = "Free some space, or set STARLING_DATA_DIR to another folder."
    return Diagnostic("disk", "problem" if free < _TIGHT else "warning", said, remedy)


async def check_runtimes(_: Settings) -> Sequence[Diagnostic]:
    """Return which runtimes there are; CrewAI is optional."""
    try:
        return [ok("runtimes", f"native, and CrewAI {version('crewai')}.")]
    except PackageNotFoundError:
        return [ok("runtimes", _NO_CREWAI)]
