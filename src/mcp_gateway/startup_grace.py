"""How long a start waits for servers that say nothing yet."""

import asyncio
from collections.abc import Callable, Collection


async def wait_for_most[T](
    asked: Collection[asyncio.Task[T]], is_good: Callable[[T], bool], grace: float, *, others: bool
) -> None:
    """Wait until all have answered, or nobody good has for a while: `grace` seconds, or as long as it took so far.

    Without any good answer there is nobody to go on with; `others` says that there is somebody anyway. A machine that
    is slow is slow for the good ones too, hence the second measure.
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
