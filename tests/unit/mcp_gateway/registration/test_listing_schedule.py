"""How long a start waits for the answers of servers."""

import asyncio
from collections.abc import Awaitable, Callable

from mcp_gateway.registration.listing_schedule import wait_for_most

GRACE = 0.02


async def waited(*answers: Callable[[], Awaitable[str]], others: bool = False, seconds: float = 60) -> list[bool]:
    """Return which of them had answered when the wait was over."""
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(_awaited(answer)) for answer in answers]
    try:
        async with asyncio.timeout(seconds):
            await wait_for_most(tasks, lambda said: said == "usable", GRACE, others=others)
        return [task.done() for task in tasks]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _awaited(answer: Callable[[], Awaitable[str]]) -> str:
    return await answer()


async def usable() -> str:
    return "usable"


async def unusable() -> str:
    return "unusable"


async def silent() -> str:
    return await asyncio.get_running_loop().create_future()


async def test_start_waits_for_all_servers_that_answer() -> None:
    assert await waited(usable, unusable, usable) == [True, True, True]


async def test_start_stops_waiting_for_silent_server_after_grace_once_one_is_usable() -> None:
    assert await waited(usable, silent) == [True, False]


async def test_start_stops_waiting_for_silent_server_after_grace_if_other_servers_are_registered() -> None:
    assert await waited(silent, others=True) == [False]


async def test_start_without_usable_server_waits_for_all() -> None:
    permission = asyncio.Event()

    async def late() -> str:
        await permission.wait()
        return "unusable"

    waiting = asyncio.get_running_loop().create_task(waited(unusable, late))
    over, _ = await asyncio.wait([waiting], timeout=5 * GRACE)
    permission.set()

    assert not over
    assert await waiting == [True, True]


async def test_start_without_servers_does_not_wait() -> None:
    assert await waited() == []
