"""How often a worker fetches that is woken again and again: each new job wakes every worker with a free slot."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from random import uniform
from typing import Final

_SECONDS_PER_PROCESS: Final = 0.002
_LONGEST_SECONDS: Final = 0.5


class FetchPace:
    """Spaces out fetches after one that found no job.

    Up to 250 processes together make about 500 such fetches a second at most, and a new job waits about 2 ms for the
    first of them. Of more, each waits half a second at most: 1,000 make 2,000 a second.
    """

    def __init__(self, processes: Callable[[], int], now: Callable[[], float]) -> None:
        """`processes` returns how many others listen; `now` the time in seconds."""
        self._processes = processes
        self._now = now
        self._earliest = 0.0
        self._reset = asyncio.Event()

    @property
    def pause(self) -> float:
        """Return how long to wait before the next fetch, in seconds."""
        return max(0.0, self._earliest - self._now())

    def found_nothing(self) -> None:
        """Note that a fetch has ended without a job."""
        seconds = self._processes() * _SECONDS_PER_PROCESS * uniform(0.5, 1.5)  # noqa: S311 - only spreads them
        self._earliest = self._now() + min(seconds, _LONGEST_SECONDS)

    def reset(self) -> None:
        """Let the next fetch happen at once, also one that waits for its turn."""
        self._earliest = 0.0
        self._reset.set()

    async def turn(self) -> None:
        """Wait until the next fetch may happen."""
        while (pause := self.pause) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._reset.wait()
            self._reset.clear()
