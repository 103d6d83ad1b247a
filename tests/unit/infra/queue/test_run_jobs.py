"""When a worker that is woken again and again fetches next."""

import asyncio

import pytest

from starling.infra.queue.run_jobs import FetchPace


@pytest.mark.parametrize(
    ("others", "least", "most"),
    [
        pytest.param(0, 0.0, 0.0, id="alone"),
        pytest.param(1, 0.001, 0.003, id="one other process"),
        pytest.param(100, 0.1, 0.3, id="a hundred"),
        pytest.param(10_000, 0.5, 0.5, id="so many that the longest pause counts"),
    ],
)
def test_pause_after_a_fetch_without_a_job_grows_with_the_processes(others: int, least: float, most: float) -> None:
    pace = FetchPace(lambda: others, lambda: 7.0)
    assert pace.pause == 0

    pace.found_nothing()

    assert least <= round(pace.pause, 6) <= most


def test_pause_ends_with_time() -> None:
    now = [7.0]
    pace = FetchPace(lambda: 100, lambda: now[0])
    pace.found_nothing()

    now[0] = 7.4

    assert pace.pause == 0


async def test_slot_that_becomes_free_ends_the_pause() -> None:
    pace = FetchPace(lambda: 100, lambda: 7.0)  # a clock that stands still: only the reset ends the wait
    pace.found_nothing()

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        waiting = group.create_task(pace.turn())
        await asyncio.sleep(0)
        pace.reset()

    assert waiting.done()
