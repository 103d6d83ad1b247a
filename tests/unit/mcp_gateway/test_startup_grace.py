"""A start waits for most servers, not for all."""

import asyncio
from collections.abc import Awaitable, Callable

from mcp_gateway.startup_grace import wait_for_most

GRACE = 0.02


async def waited(*answers: Callable[[], Awaitable[str]], others: bool = False, seconds: float = 5) -> list[bool]:
    """Return which of them had answered when the wait was over."""
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(_awaited(answer)) for answer in answers]
    try:
        async with asyncio.timeout(seconds):
            await wait_for_most(tasks, lambda said: said == "good", GRACE, others=others)
        return [task.done() for task in tasks]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _awaited(answer: Callable[[], Awaitable[str]]) -> str:
    return await answer()


async def good() -> str:
    return "good"


async def bad() -> str:
    return "bad"


async def silent() -> str:
    return await asyncio.get_running_loop().create_future()


async def test_all_that_answer_are_waited_for() -> None:
    assert await waited(good, bad, good) == [True, True, True]


async def test_who_says_nothing_is_left_once_somebody_good_answered() -> None:
    assert await waited(good, silent) == [True, False]


async def test_who_says_nothing_is_left_where_there_are_others_anyway() -> None:
    assert await waited(silent, others=True) == [False]


async def test_without_anybody_good_all_are_waited_for() -> None:
    permission = asyncio.Event()

    async def late() -> str:
        await permission.wait()
        return "bad"

    waiting = asyncio.get_running_loop().create_task(waited(bad, late))
    over, _ = await asyncio.wait([waiting], timeout=5 * GRACE)
    permission.set()

    assert not over
    assert await waiting == [True, True]


async def test_nobody_is_nothing_to_wait_for() -> None:
    assert await waited() == []
