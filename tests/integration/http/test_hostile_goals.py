"""Goals that ask for more than a team may be: each row of `architect_goals.jsonl`, executed as what it describes."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from starling.app.access.keys import KeySpec
from starling.core.principal import Grant, Scope
from starling.infra.postgres.audit import Actor
from tests.integration.http.conftest import LiveApi
from tests.support.sse import read_events

pytestmark = pytest.mark.asyncio(loop_scope="module")

_TESTS = Path(__file__).parents[2]
_FILE = _TESTS / "data/security/architect_goals.jsonl"
GOALS = {row["cat"]: row["goal"] for row in map(json.loads, _FILE.read_text("utf-8").splitlines())}


async def send(api: LiveApi, path: str, body: Any, *statuses: int, headers: dict[str, str] | None = None) -> Any:
    async with api.client.post(path, json=body, headers=headers) as response:
        assert response.status in statuses, await response.text()
        return await response.json()


async def key(api: LiveApi, *scopes: Scope, grant: Grant | None = None) -> dict[str, str]:
    wish = KeySpec("test", "default", frozenset(scopes), grant)
    return {"Authorization": f"Bearer {(await api.services.storage.keys.create(wish, Actor.local('test')))[1]}"}


async def names(api: LiveApi) -> set[str]:
    return {team["name"] for team in (await api.get("/v1/teams"))["teams"]}


async def builds_nothing(api: LiveApi, goal: str, headers: dict[str, str] | None = None) -> None:
    """Have a goal built, and check that its run ends with a reason and stores nothing."""
    run = (await send(api, "/v1/teams", {"goal": goal}, 202, headers=headers))["run_id"]
    async with api.client.get(f"/v1/runs/{run}/events", headers=headers) as response:
        events = [event async for event in read_events(response)]
    assert [event.data for event in events if event.type == "published"] == []
    assert events[-1].data["status"] == "failed"
    assert "No team was built" in str(events[-1].data)


async def stored(api: LiveApi, name: str, instructions: str, role: str) -> None:
    """Import and activate a team with texts, and check that they are stored as they are."""
    member = {"name": "reader", "role": role, "goal": "Show the load.", "server": "system_health"}
    spec = {"name": name, "purpose": "Shows the load.", "instructions": instructions, "members": [member]}
    await send(api, f"/v1/teams/{name}/versions", {"spec": spec}, 201)
    await send(api, f"/v1/teams/{name}/activate", {}, 200)
    (version,) = (await api.get(f"/v1/teams/{name}/versions"))["versions"]
    assert (version["spec"]["instructions"], version["spec"]["members"][0]["role"]) == (instructions, role)


async def escalate(api: LiveApi, goal: str) -> None:
    granted = await key(api, Scope.RUN, Scope.TEAMS, grant=Grant(servers=frozenset({"time"})))
    await builds_nothing(api, goal, granted)
    wanted = {"goal": goal, "constraints": {"servers": ["system_health"]}}
    assert "that this key may call" in (await send(api, "/v1/teams", wanted, 422, headers=granted))["detail"]


async def name_collision(api: LiveApi, goal: str) -> None:
    name = goal.split("'")[1]
    before = await names(api)
    refused = await send(api, "/v1/teams", {"goal": goal, "name": name}, 422)
    assert refused["errors"][0]["rule"] == "reserved_name"
    assert await names(api) == before


async def name_sql(api: LiveApi, goal: str) -> None:
    before = await names(api)
    await send(api, "/v1/teams", {"goal": "Show the load.", "name": goal}, 422)
    await stored(api, "literal", goal, goal)
    assert await names(api) == before | {"literal"}


async def code_in_spec(api: LiveApi, goal: str) -> None:
    await stored(api, "evaluated", goal, goal)
    await api.ask("Use evaluated: show the load")
    assert not Path("CANARY").exists()


async def format_field(api: LiveApi, goal: str) -> None:
    await stored(api, "formatted", goal, goal.split("'")[1])


async def key_scope(api: LiveApi, goal: str) -> None:
    await send(api, "/v1/teams", {"goal": goal}, 403, headers=await key(api, Scope.RUN))


async def empty(api: LiveApi, _: str) -> None:
    for goal in ("", " \n ", "a" * 10**6):
        await send(api, "/v1/teams", {"goal": goal}, 413, 422)


EXECUTED: dict[str, Callable[[LiveApi, str], Awaitable[None]]] = {
    "escalate": escalate,
    "name-collision": name_collision,
    "name-sql": name_sql,
    "fork-bomb": builds_nothing,
    "code-in-spec": code_in_spec,
    "format": format_field,
    "key-scope": key_scope,
    "empty": empty,
}
_BUILDS, _LATER = "integration/brain/test_team_builds.py", "integration/http/test_tools_added_later.py"
_LOST = f"{_BUILDS}::test_build_whose_worker_is_lost_at_its_publication_stores_and_activates_one_version"
EXECUTED_BY = {
    "tool-later": f"{_LATER}::test_team_of_a_whole_server_calls_a_tool_that_came_later_only_after_its_next_activation",
    "crash": _LOST,
    "other-worker": "integration/app/test_teams.py"
    "::test_activated_team_is_on_the_roster_of_another_process_with_its_first_epoch",
}
"""The tests that execute what needs servers or workers of its own."""


@pytest.mark.parametrize("cat", EXECUTED)
async def test_hostile_goal_comes_to_what_is_expected(api: LiveApi, cat: str) -> None:
    await EXECUTED[cat](api, GOALS[cat])


async def test_each_row_is_executed() -> None:
    assert GOALS.keys() == EXECUTED.keys() | EXECUTED_BY.keys()
    for test in EXECUTED_BY.values():
        file, _, name = test.partition("::")
        assert f"def {name}(" in (_TESTS / file).read_text("utf-8")
