"""What a process does beside its work, for as long as something else lasts."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

_log = logging.getLogger(__name__)


@asynccontextmanager
async def in_background(work: Coroutine[Any, Any, None], name: str) -> AsyncGenerator[asyncio.Task[None]]:
    """Do it until the context ends. If it fails before, the log says so at once: nothing else would.

    Gives the task that does it.
    """
    task = asyncio.get_running_loop().create_task(work, name=name)
    task.add_done_callback(_tell)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _tell(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("%s ended for good, restart this process: %s", task.get_name(), error, exc_info=error)
