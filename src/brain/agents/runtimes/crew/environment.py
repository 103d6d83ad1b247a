"""The import of CrewAI, which only workers need, and only for the agents that ask for it."""

import gc
import os
import sys
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Final

_VARIABLES: Final = {
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_TRACING_ENABLED": "false",  # else a terminal is asked whether to share traces
    "PYTHON_DOTENV_DISABLED": "true",  # else it loads any .env above its own files
}
_IMPORTING = Lock()


def crewai_runtime():
    """Return the module of CrewAI. Imports it: 3 s of processor time, 250 MB. For a thread, not for an event loop."""
    with _IMPORTING:
        with _prepared():
            from brain.agents.runtimes.crew import runtime as crewai_runtime
        crewai_runtime.remove_listeners()

    return crewai_runtime


@contextmanager
def _prepared() -> Generator[None]:
    """Keep what CrewAI writes when it is imported in a folder that is deleted then.

    What it creates stays, so garbage collection is to spare it: a walk through all of it stops every thread for 0.2 s.
    """
    if "crewai" in sys.modules:
        yield
        return
    collects, warn = gc.isenabled(), warnings.warn
    gc.disable()
    try:
        with TemporaryDirectory(prefix="starling-crewai-") as folder:
            os.environ.update(_VARIABLES, CREWAI_STORAGE_DIR=folder)  # noqa: TID251 - CrewAI reads nothing else
            from crewai_core import settings, token_manager

            # its settings and the key of its account, which no variable of the environment moves
            settings.DEFAULT_CONFIG_PATH = Path(folder, "settings.json")
            token_manager.TokenManager._get_secure_storage_path = staticmethod(lambda: Path(folder))  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
            yield
    finally:
        gc.freeze()
        warnings.warn = warn  # it puts its own in place of this
        if collects:
            gc.enable()
