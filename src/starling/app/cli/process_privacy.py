"""Keeps what this process has in memory and in its environment from processes that it starts."""

import ctypes
import sys
from typing import Final

_PR_SET_DUMPABLE: Final = 4


def forbid_inspection() -> None:
    """Make `/proc/<pid>/environ` and `mem` of this process unreadable for processes of the same user (Linux).

    It leaves no core dump then. A process with CAP_SYS_PTRACE, CAP_SYS_ADMIN or CAP_PERFMON, such as one of root, can
    still read them.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
