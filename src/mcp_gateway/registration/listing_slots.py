"""How many sessions are listed at a time."""

import asyncio
from typing import Final

AT_ONCE: Final = 16

type Turn = asyncio.Future[None]


class ListingSlots:
    """Lets so many listings run at a time; further ones wait, first come, first served, unless a call needs theirs."""

    def __init__(self, count: int) -> None:
        self._free = count  # negative while calls have further listings run
        self._waiting: dict[Turn, None] = {}  # in order

    def request(self) -> Turn:
        """Return what is done when a listing may run. `release` follows in any case."""
        turn: Turn = asyncio.get_running_loop().create_future()
        self._waiting[turn] = None
        self._grant()
        return turn

    def hurry(self, turn: Turn) -> None:
        """Let a listing run at once, if it waits."""
        if turn in self._waiting:
            del self._waiting[turn]
            self._free -= 1
            turn.set_result(None)

    def release(self, turn: Turn) -> None:
        """Let the next one run, after the end of a listing."""
        if turn in self._waiting:  # it ended before its turn
            del self._waiting[turn]
        else:
            self._free += 1
            self._grant()

    def _grant(self) -> None:
        while self._free > 0 and self._waiting:
            self.hurry(next(iter(self._waiting)))
