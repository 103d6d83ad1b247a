"""Agents over HTTP: found by a query, with the scores that rank them."""

import pytest

from tests.integration.http.conftest import LiveApi

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_query_lists_the_best_matching_agents_with_their_scores(api: LiveApi) -> None:
    async with api.client.get("/v1/agents", params={"query": "How full is the disk?", "limit": "2"}) as response:
        found = await response.json()

    best, second = found["agents"]
    assert (response.status, found["total"], found["warning"]) == (200, 5, "")
    assert (best["name"], best["tool"], best["state"]) == ("mcp_agent_system_health", "disk", "ready")
    assert best["score"] == pytest.approx(sum(best["parts"].values()), abs=1e-3)
    assert best["score"] > second["score"]


async def test_list_without_a_query_has_no_scores(api: LiveApi) -> None:
    listed = await api.get("/v1/agents")

    assert {agent["name"] for agent in listed["agents"]} >= {"mcp_agent_system_health", "generalist", "coder"}
    assert all("score" not in agent for agent in listed["agents"])


async def test_agent_is_shown_with_the_verdicts_on_its_results(api: LiveApi) -> None:
    before = (await api.get("/v1/agents/mcp_agent_system_health"))["verdicts"]
    await api.ask("How full is the disk?")
    after = (await api.get("/v1/agents/mcp_agent_system_health"))["verdicts"]

    assert after == before | {"APPROVED": before["APPROVED"] + 1}
    assert after.keys() == {"APPROVED", "FIXED", "REJECTED"}


@pytest.mark.parametrize("wrong", [{"query": ""}, {"query": "disk", "limit": "0"}, {"query": "disk", "limit": "201"}])
async def test_query_out_of_range_is_refused(api: LiveApi, wrong: dict[str, str]) -> None:
    await api.get("/v1/agents", params=wrong, status=422)
