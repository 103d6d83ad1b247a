"""Processes whose wall clock is wrong or steps, with libfaketime; monotonic clocks are right.

`python -m tests.support.wrong_clock` exits with 1, and says what to install, if it is missing.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MISSING = "libfaketime is missing: `apt-get install faketime` installs it."
_LIBRARIES = [
    file for where in ("lib*", "lib*/*") for file in Path("/usr").glob(f"{where}/faketime/libfaketimeMT.so.1")
]
_SLEEP = """\
import threading, time
time.sleep = lambda seconds: threading.Event().wait(seconds)  # libfaketime 0.9 breaks waiting until a monotonic time
"""


@dataclass(frozen=True)
class WrongClock:
    """The wall clock of processes that are started with `variables`; `folder` has to exist."""

    folder: Path

    def set_ahead(self, seconds: int) -> None:
        """Set by how many seconds it is ahead, in processes that run as well."""
        new = self.folder / "clock.new"
        new.write_text(f"{seconds:+d}\n")
        new.replace(self.folder / "clock")

    @property
    def variables(self) -> Mapping[str, str]:
        """Return the variables of the environment, for Python processes too. Raises AssertionError without library."""
        assert _LIBRARIES, MISSING
        (self.folder / "sitecustomize.py").write_text(_SLEEP)
        return {
            "LD_PRELOAD": str(_LIBRARIES[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self.folder / "clock"),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
            "PYTHONPATH": str(self.folder),
        }


if __name__ == "__main__" and not _LIBRARIES:
    sys.exit(MISSING)
