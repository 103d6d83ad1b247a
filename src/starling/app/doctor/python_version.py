"""The running Python version."""

import platform
import sys
from collections.abc import Sequence

from starling.app.doctor.finding import Diagnostic, ok
from starling.core.settings.schema import Settings

FLOOR = (3, 12)


async def check(_: Settings) -> Sequence[Diagnostic]:
    """Return whether this Python is new enough."""
    return [finding(sys.version_info[:2])]


def finding(version: tuple[int, ...]) -> Diagnostic:
    """Return the finding for a version."""
    if version >= FLOOR:
        return ok("python", f"Python {platform.python_version()} at {sys.executable}.")
    floor = ".".join(map(str, FLOOR))
    return Diagnostic("python", "problem", f"This is Python {platform.python_version()}.", f"Use {floor} or newer.")
