"""How long the parts of a start take."""

import time
from collections.abc import Callable

import psutil


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

    def importing(self, load: Callable[[], object]) -> Callable[[], None]:
        """Return what calls `load`, and then ends the imports."""

        def imports() -> None:
            load()
            self.end("imports")

        return imports
