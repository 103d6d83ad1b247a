"""Children that end with their parent, however that ends."""

import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


def die_with_parent(by: signal.Signals) -> Callable[[], None] | None:
    """Return the `preexec_fn` with which a child gets the signal `by` at our death; None where only Linux could.

    It runs after a change of user, which would take the request back. The system counts the end of the
    thread that started the child as our death.
    """
    if sys.platform != "linux":
        return None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, int(by), 0, 0, 0)
        if os.getppid() != parent:  # we died in between
            os._exit(1)

    return ask
