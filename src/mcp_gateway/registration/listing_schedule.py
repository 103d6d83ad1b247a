"""When servers are listed: how many at a time, and how long a start waits for them."""

import asyncio
from collections.abc import Callable, Collection
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


async def wait_for_most[T](
    asked: Collection[asyncio.Task[T]], is_good: Callable[[T], bool], grace: float, *, others: bool
) -> None:
    """Wait until all tasks are done, or no good answer has come for `grace` seconds, or for as long as the start took.

    The longer of the two counts: a slow machine delays working servers too. Without any good answer the wait goes on,
    unless `others` is set: then other servers are usable already.
    """
    loop = asyncio.get_running_loop()
    begun = loop.time()
    until = begun + grace if others else None
    pending = set(asked)
    while pending:
        left = None if until is None else max(0.0, until - loop.time())
        done, pending = await asyncio.wait(pending, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            return
        if any(is_good(task.result()) for task in done):
            until = loop.time() + max(grace, loop.time() - begun)
