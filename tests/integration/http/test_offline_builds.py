"""Teams that `offline:rules` designs for goals in ordinary words: built, proved, activated and used without a model."""

from pathlib import Path

import pytest

from tests.integration.http.conftest import LiveApi, running_api
from tests.support.reference_servers import ReferenceServers
from tests.support.sse import Event, read_events

GOAL = "Build me a team that watches this machine's health and tells the current time in a time zone"


def case(request: str, text: str) -> dict[str, object]:
    said = {"id": "said", "kind": "text_contains", "text": "It is said.", "value": text}
    return {"input": request, "criteria": [said]}


CASES = [case("How much memory is free?", "available bytes"), case("What time is it in Lima?", "America/Lima")]


async def built(api: LiveApi, goal: str) -> list[Event]:
    body = {"goal": goal, "name": "watch", "cases": CASES}
    run_id = (await api.post("/v1/teams", json=body, status=202))["run_id"]
    async with api.client.get(f"/v1/runs/{run_id}/events") as response:
        return [event async for event in read_events(response)]


def of(events: list[Event], kind: str) -> list[dict[str, object]]:
    return [event.data for event in events if event.type == kind]


async def test_goal_of_read_tools_becomes_an_active_team_that_answers(database_url: str, tmp_path: Path) -> None:
    reference = ReferenceServers(tmp_path)
    reference.create()
    every_server = reference.configuration()
    servers = {name: every_server[name] for name in ("time", "system_health", "git")}
    async with running_api(database_url, tmp_path, servers) as api:
        events = await built(api, GOAL)
        used = await api.ask("Use watch: show the load")

    assert [one["findings"] for one in of(events, "checks")] == [[]]
    proofs = of(events, "proof")
    assert [(one["case"], one["passed"], one["counts"], one["simulated"]) for one in proofs] == [
        ("case_1", True, True, 0),
        ("case_2", True, True, 0),
    ]
    assert [one["state"] for one in of(events, "published")] == ["active"], events[-1].data
    assert [one["agent"] for one in of(used, "task_start")] == ["watch", "system_health"]
    assert used[-1].data["status"] == "succeeded"


@pytest.mark.asyncio(loop_scope="module")
async def test_wish_for_a_team_is_given_to_the_architect_and_gaps_are_reported(api: LiveApi) -> None:
    events = await api.ask("Please build me a team that orders pizzas and shows how much memory is available")

    assert [one["agent"] for one in of(events, "task_start")] == ["architect"]
    assert [one["missing"] for one in of(events, "design")] == [
        [{"part": "orders pizzas", "nearest": ["system_health"]}]
    ]
    assert "orders pizzas" in str(events[-1].data)
