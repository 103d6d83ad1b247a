"""Comparisons of runs over HTTP."""

import pytest

from tests.integration.http.conftest import LiveApi

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_comparison_names_what_differs_between_two_runs(api: LiveApi) -> None:
    runs = [(await api.ask(f"How full is this disk{end}"))[0].data["run_id"] for end in ("?", "?", ", and why?")]

    first, second, other = runs
    async with api.client.get(f"/v1/runs/{first}/comparison/{second}") as response:
        assert response.status == 200, await response.text()
        same = await response.json()
    async with api.client.get(f"/v1/runs/{first}/comparison/{other}") as response:
        assert response.status == 200, await response.text()
        different = await response.json()

    assert (same["a"]["run_id"], same["b"]["run_id"], same["same_request"]) == (first, second, True)
    assert {"request", "plan"} <= {part["kind"] for part in same["parts"] if part["same"]}
    assert (different["b"]["run_id"], different["same_request"]) == (other, False)
    assert different["first_difference"]["kind"] == "request"
