"""The machine's own Chromium, for pages."""

import os
import shutil
from typing import Final

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
INSTALL: Final = "there is no Chromium: install it, for example with `apt-get install chromium`"


def chromium() -> str | None:
    """Return the path of the browser, None where there is none."""
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


def chromium_arguments() -> list[str]:
    """Return what it has to be started with here: root can't use its sandbox."""
    return ["--no-sandbox"] if os.geteuid() == 0 else []
