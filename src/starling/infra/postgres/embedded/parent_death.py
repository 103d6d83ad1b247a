"""Child processes that end with their parent, even if it is killed."""

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from functools import partial

_PR_SET_PDEATHSIG = 1


def die_with_parent(by: signal.Signals) -> Callable[[], None] | None:
    """Return a `preexec_fn` that sends the child the signal `by` when this process ends; None except on Linux.

    It runs after a change of user, which would clear the setting. Linux sends the signal when the thread that
    started the child ends.
    """
    if sys.platform != "linux":
        return None
    return partial(end_with, os.getpid(), by, ctypes.CDLL(None).prctl)


def end_with(parent: int, by: signal.Signals, prctl: Callable[..., object] | None = None) -> None:
    """Have the kernel send this process the signal `by` when its parent ends; exit if it has ended already."""
    if sys.platform == "linux":
        (prctl or ctypes.CDLL(None).prctl)(_PR_SET_PDEATHSIG, int(by), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
