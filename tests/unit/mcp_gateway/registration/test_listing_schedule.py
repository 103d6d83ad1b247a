"""How long a start waits for the answers of servers."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from mcp_gateway.configuration.servers import server_of
from mcp_gateway.registration.listing_schedule import start_seconds, wait_for_most
from starling.core.settings.schema import Limits

GRACE = 0.02


async def waited(*answers: Callable[[], Awaitable[str]], first: float = 60, seconds: float = 60) -> list[bool]:
    """Return which of them had answered when the wait was over."""
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(_awaited(answer)) for answer in answers]
    try:
        async with asyncio.timeout(seconds):
            await wait_for_most(tasks, lambda said: said == "usable", GRACE, first)
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


async def test_start_without_usable_server_stops_waiting_for_a_silent_one_after_the_first_wait() -> None:
    assert await waited(silent, first=GRACE) == [False]


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


@pytest.mark.parametrize(
    ("command", "seconds"),
    [
        ("npx -y server", 90),
        ("/usr/bin/uvx server", 90),
        ("bunx server", 90),
        ("pipx run server", 90),
        ("docker run --rm server", 90),
        ("pipx list", 20),
        ("docker exec it server", 20),
        ("python -m server", 20),
        ("node server.js", 20),
    ],
)
def test_first_start_is_longer_for_commands_that_download_servers(command: str, seconds: float) -> None:
    program, *arguments = command.split()

    assert start_seconds(server_of({"command": program, "args": arguments}), Limits()) == seconds


def test_configured_time_of_a_start_that_is_longer_counts() -> None:
    assert start_seconds(server_of({"command": "npx"}), Limits(server_start_seconds=200)) == 200
