"""Several things at once."""

import asyncio
import inspect
from collections.abc import Coroutine
from typing import Any

import pytest

from brain.agents.tools.tool_calling import run_concurrently
from starling.core.errors import NotFoundError, OutcomeUnknownError, StarlingError, SuspendedError


async def fails(error: Exception) -> None:
    raise error


async def test_results_keep_the_order_of_overlapping_coroutines() -> None:
    barrier = asyncio.Barrier(3)

    async def work(number: int) -> int:
        await barrier.wait()
        return number

    assert await run_concurrently(work(number) for number in range(3)) == [0, 1, 2]


async def test_first_error_cancels_the_others_and_is_raised_as_itself() -> None:
    ended = asyncio.Event()

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with pytest.raises(OutcomeUnknownError):
        await run_concurrently([waits(), fails(OutcomeUnknownError("shop.change"))])

    assert ended.is_set()


async def test_one_of_two_simultaneous_errors_is_raised() -> None:
    works: list[Coroutine[Any, Any, None]] = [fails(OutcomeUnknownError("shop.change")), fails(NotFoundError("a", "b"))]

    with pytest.raises(StarlingError):
        await run_concurrently(works)


async def test_process_that_ends_leaves_no_coroutine_that_was_never_awaited() -> None:
    works = [fails(NotFoundError("a", "b")) for _ in range(3)]
    running = asyncio.get_running_loop().create_task(run_concurrently(works))
    await asyncio.sleep(0)

    for task in asyncio.all_tasks() - {asyncio.current_task()}:  # as asyncio.run does at its end
        task.cancel()
    await asyncio.wait([running])

    assert running.cancelled()
    assert {inspect.getcoroutinestate(work) for work in works} == {inspect.CORO_CLOSED}


@pytest.mark.parametrize(
    ("suspended", "interrupts"),
    [([("a",), ("b", "a")], ("a", "b")), ([("a",), ()], ())],
    ids=["each waits for an answer", "one is to go on in another process"],
)
async def test_suspension_waits_for_answers_only_if_nothing_goes_on_without_them(
    suspended: list[tuple[str, ...]], interrupts: tuple[str, ...]
) -> None:
    with pytest.raises(SuspendedError) as raised:
        await run_concurrently(fails(SuspendedError(*one)) for one in suspended)

    assert raised.value.interrupts == interrupts
