"""Run coroutines concurrently, with plain errors instead of groups."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

from starling.core.errors import StarlingError, SuspendedError


async def run_concurrently[T](works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the results in order. The first StarlingError cancels the others and is raised as itself.

    SuspendedError cancels no other: one is raised at the end, with the interrupts of all suspended coroutines.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_until_suspended(work)) for work in works]
    except* StarlingError as errors:
        raise first_error(errors) from None
    results: list[T] = []
    waiting: list[str] = []
    for outcome in (task.result() for task in tasks):
        if isinstance(outcome, SuspendedError):
            waiting += outcome.interrupts
        else:
            results.append(outcome)
    if waiting:
        raise SuspendedError(*dict.fromkeys(waiting))
    return results


def first_error(errors: BaseExceptionGroup[StarlingError]) -> StarlingError:
    """Return the first error of a group, however deep it is."""
    first: BaseException = errors
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    assert isinstance(first, StarlingError)
    return first


async def _until_suspended[T](work: Coroutine[Any, Any, T]) -> T | SuspendedError:
    try:
        return await work
    except SuspendedError as suspended:
        return suspended
