"""A service's process: what others may read of it, when it collects garbage, how its start and its checks go."""

import ctypes
import gc
import sys
import time
from collections.abc import Awaitable, Sequence
from typing import Final

import psutil

from starling.app.cli.lazy_commands import import_quietly
from starling.core.diagnostics import Diagnostic
from starling.core.settings.schema import Settings

_PR_SET_DUMPABLE: Final = 4


def forbid_inspection() -> None:
    """Make `/proc/<pid>/environ` and `mem` of this process unreadable for processes of the same user (Linux).

    It leaves no core dump then. A process with CAP_SYS_PTRACE, CAP_SYS_ADMIN or CAP_PERFMON, such as one of root, can
    still read them.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


async def finish_start(loading: Awaitable[None]) -> None:
    """Wait until everything is loaded, then `freeze_startup_objects`."""
    try:
        await loading
    finally:
        freeze_startup_objects()


def freeze_startup_objects() -> None:
    """Exclude the objects created during start-up from garbage collection, and begin with it.

    They are most of all objects (modules, compiled graphs); walking them took a sixth of a run's time.
    """
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)
    gc.enable()


async def run_checks(settings: Settings) -> Sequence[Diagnostic]:
    """Run the checks of the doctor, whose modules a service imports once they are asked for."""
    return await import_quietly("starling.app.doctor.runner").run_checks(settings)


class StartTimes:
    """Measures the parts of a start, one after another, from the start of the process on; the first is imports."""

    def __init__(self) -> None:
        self._last = psutil.Process().create_time()
        self.seconds: dict[str, float] = {}

    def end(self, part: str) -> None:
        """End a part; the next one begins."""
        now = time.time()
        self.seconds[part] = now - self._last
        self._last = now
