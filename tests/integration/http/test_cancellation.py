"""Cancellation over HTTP: status codes, and that a run ends once."""

import pytest

from starling.core.ids import new_id
from tests.integration.http.conftest import LiveApi

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_cancelling_an_ended_run_changes_nothing(api: LiveApi) -> None:
    events = await api.ask("How full is this disk?")
    run_id = events[0].data["run_id"]

    for _ in range(2):
        async with api.client.post(f"/v1/runs/{run_id}/cancel") as response:
            answer = response.status, await response.json()

        assert answer == (200, {"run_id": run_id, "status": "succeeded"})


async def test_cancelling_a_run_right_after_its_acceptance_ends_it_once(api: LiveApi) -> None:
    body = {"input": "How full is this disk?", "thread_id": new_id()}
    run_id = (await api.post("/v1/runs", json=body, status=202))["run_id"]

    async with api.client.post(f"/v1/runs/{run_id}/cancel") as response:
        status, document = response.status, await response.json()
    async with api.client.get(f"/v1/runs/{run_id}/events") as response:
        text = await response.text()

    assert status == (202 if document["status"] == "running" else 200)
    assert text.count("event: done") == 1
