"""The running Python version."""

import platform
import sys
from collections.abc import Sequence

from starling.app.doctor.finding import Finding, ok
from starling.core.settings.schema import Settings

FLOOR = (3, 12)


async def check(_: Settings) -> Sequence[Finding]:
    """Return whether this Python is new enough."""
    return [finding(sys.version_info[:2])]


def finding(version: tuple[int, ...]) -> Finding:
    """Return the finding for a version."""
    if version >= FLOOR:
        return ok("python", f"Python {platform.python_version()} at {sys.executable}.")
    floor = ".".join(map(str, FLOOR))
    return Finding("python", "problem", f"This is Python {platform.python_version()}.", f"Use {floor} or newer.")
