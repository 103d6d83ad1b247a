"""Explanations and comparisons of runs over HTTP."""

import asyncio
from typing import Any, Final

import pytest

from starling.infra.postgres.runs.acceptance import RunKey
from tests.integration.http.conftest import LiveApi
from tests.support.stored_runs import blocked_for, events_of, stored_run

pytestmark = pytest.mark.asyncio(loop_scope="module")

LOOP_SECONDS: Final = 0.1  # for so long at most the event loop may be blocked


async def explained(api: LiveApi, key: RunKey) -> dict[str, Any]:
    return await api.get(f"/v1/runs/{key.id}/explanation")


async def test_large_run_is_explained_without_blocking_the_event_loop(api: LiveApi) -> None:
    engine, stop = api.services.storage.engine, asyncio.Event()
    steps = [{"path": f"t{n % 200}", "input_tokens": 1, "output_tokens": 1} for n in range(1000)]
    key = await stored_run(engine, events_of(300, chars=15_000), steps)  # 9 MB
    await explained(api, await stored_run(engine, events_of(1)))  # imports, and compiled statements

    async with asyncio.TaskGroup() as group:
        watcher = group.create_task(blocked_for(stop))
        found = await explained(api, key)
        stop.set()

    assert (found["cause"]["task"], found["cost"]["by_agent"][0]["model_calls"] > 0) == ("t300", True)
    assert watcher.result() < LOOP_SECONDS


async def test_comparison_names_what_differs_between_two_runs(api: LiveApi) -> None:
    runs = [(await api.ask(f"How full is this disk{end}"))[0].data["run_id"] for end in ("?", "?", ", and why?")]

    first, second, other = runs
    same = await api.get(f"/v1/runs/{first}/comparison/{second}")
    different = await api.get(f"/v1/runs/{first}/comparison/{other}")

    assert (same["a"]["run_id"], same["b"]["run_id"], same["same_request"]) == (first, second, True)
    assert {"request", "plan"} <= {part["kind"] for part in same["parts"] if part["same"]}
    assert (different["b"]["run_id"], different["same_request"]) == (other, False)
    assert different["first_difference"]["kind"] == "request"
