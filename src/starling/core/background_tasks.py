"""Background tasks that run as long as a context is open."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

_log = logging.getLogger(__name__)


@asynccontextmanager
async def in_background(
    work: Coroutine[Any, Any, None], name: str, stop_seconds: float | None = None
) -> AsyncGenerator[asyncio.Task[None]]:
    """Run `work` in a task until the context ends; yield the task. A failure before that is logged at once.

    At the end it has `stop_seconds` to stop, or as long as it takes.
    """
    task = asyncio.get_running_loop().create_task(work, name=name)
    task.add_done_callback(_log_failure)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task], timeout=stop_seconds)


def ignore_failure(task: asyncio.Task[Any]) -> None:
    """Take the exception of a task, which those who await it get as well; they may be gone."""
    if not task.cancelled():
        task.exception()


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error(
            "the background task %s failed and is not started again; restart this process: %s",
            task.get_name(),
            error,
            exc_info=error,
        )
