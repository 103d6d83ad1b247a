"""Doing several things at once, with plain errors."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

from starling.core.errors import StarlingError


async def side_by_side[T](works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the results in order; the first of our errors ends the others and is raised as itself."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
    except* StarlingError as errors:
        first: BaseException = errors
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None
    return [task.result() for task in tasks]
