"""When servers are listed: how many at a time, and how long a start waits for them."""

import asyncio
from collections.abc import Callable, Collection
from typing import Final

AT_ONCE: Final = 16


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
