"""Goals that ask for more than a team may be: each row of `architect_goals.jsonl`, executed as what it describes."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from starling.core.principal import Grant, Scope
from starling.core.settings.schema import Limits
from starling.core.teams.stars import DEEPEST
from tests.integration.http.conftest import SERVERS, LiveApi, running_api
from tests.support.sse import Event, read_events

pytestmark = pytest.mark.asyncio(loop_scope="module")

_TESTS = Path(__file__).parents[2]
_FILE = _TESTS / "data/security/architect_goals.jsonl"
TEAMS = 8  # that a tenant may have
ROWS = {row["cat"]: row for row in map(json.loads, _FILE.read_text("utf-8").splitlines())}


async def send(api: LiveApi, path: str, body: Any, *statuses: int, headers: dict[str, str] | None = None) -> Any:
    async with api.client.post(path, json=body, headers=headers) as response:
        assert response.status in statuses, await response.text()
        return await response.json()


async def names(api: LiveApi) -> set[str]:
    return {team["name"] for team in (await api.get("/v1/teams"))["teams"]}


async def build(api: LiveApi, wanted: Any, headers: dict[str, str] | None = None) -> list[Event]:
    """Have a team built, and return the events of its run."""
    run = (await send(api, "/v1/teams", wanted, 202, headers=headers))["run_id"]
    async with api.client.get(f"/v1/runs/{run}/events", headers=headers) as response:
        return [event async for event in read_events(response)]


async def builds_nothing(api: LiveApi, goal: str, headers: dict[str, str] | None = None) -> None:
    """Have a goal built, and check that its run ends with a reason and stores nothing."""
    events = await build(api, {"goal": goal}, headers)
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
    """Build with a server that is there: a key that may call it gets a team, another one gets nothing."""
    wanted = goal.replace("the admin server", "system_health to show the load of this machine")
    with_time, with_health = [
        await api.key(Scope.RUN, Scope.TEAMS, grant=Grant(servers=frozenset({server})))
        for server in ("time", "system_health")
    ]
    before = await names(api)
    await builds_nothing(api, wanted, with_time)
    limited = {"goal": wanted, "constraints": {"servers": ["system_health"]}}
    assert "that this key may call" in (await send(api, "/v1/teams", limited, 422, headers=with_time))["detail"]
    assert await names(api) == before
    built = await build(api, {"goal": wanted, "name": "granted", "activate": False}, with_health)
    assert built[-1].data["status"] == "succeeded", built[-1].data
    assert await names(api) == before | {"granted"}


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


async def key_scope(api: LiveApi, goal: str) -> None:
    await send(api, "/v1/teams", {"goal": goal}, 403, headers=await api.key(Scope.RUN))


async def fork_bomb(api: LiveApi, goal: str) -> None:
    """Nest teams until the rule of depth stops it, then have more of them until the quota does."""
    await builds_nothing(api, goal)
    admin = await api.key(*Scope, tenant="bomb")
    member: dict[str, Any] = {"name": "reader", "role": "Reader", "goal": "Show it.", "server": "system_health"}
    for level in range(DEEPEST):
        spec = {"name": f"level_{level}", "purpose": f"Has {level} levels.", "members": [member]}
        await send(api, f"/v1/teams/level_{level}/versions", {"spec": spec}, 201, headers=admin)
        await send(api, f"/v1/teams/level_{level}/activate", {}, 200, headers=admin)
        member = {"name": "inner", "role": "Reader", "goal": "Show it.", "team": f"level_{level}"}
    spec = {"name": "too_deep", "purpose": "Is too deep.", "members": [member]}
    refused = await send(api, "/v1/teams/too_deep/versions", {"spec": spec}, 422, headers=admin)
    assert [(one["rule"], one["path"]) for one in refused["errors"]] == [("depth", "members[0].team")]
    assert f"{DEEPEST} may be." in refused["errors"][0]["reason"]
    writer = {"name": "writer", "role": "Writer", "goal": "Write."}
    for number in range(DEEPEST, TEAMS + 1):
        spec = {"name": f"wide_{number}", "purpose": f"Writes {number}.", "members": [writer]}
        path, status = f"/v1/teams/wide_{number}/versions", 201 if number < TEAMS else 409
        refused = await send(api, path, {"spec": spec}, status, headers=admin)
    assert refused["detail"] == f"Your tenant has its {TEAMS} teams already."
    assert "limits.teams_per_tenant" in refused["remedy"]


async def empty(api: LiveApi, _: str) -> None:
    await stored(api, "kept", "Show it.", "Reader")
    before = await names(api)
    for goal in ("", " \n ", "a" * 10**6, "😀", "\x00", "Show the \x00 load."):
        await send(api, "/v1/teams", {"goal": goal}, 422)
        await send(api, "/v1/teams/kept/versions", {"goal": goal}, 422)
    assert await names(api) == before


EXECUTED: dict[str, Callable[[LiveApi, str], Awaitable[None]]] = {
    "escalate": escalate,
    "name-collision": name_collision,
    "name-sql": name_sql,
    "fork-bomb": fork_bomb,
    "code-in-spec": code_in_spec,
    "key-scope": key_scope,
    "empty": empty,
}
EXECUTED_BY = {
    "tool-later": "integration/http/test_tools_added_later.py"
    "::test_team_of_a_whole_server_calls_a_tool_that_came_later_only_after_its_next_activation",
    "crash": "e2e/test_team_builds_after_kill.py"
    "::test_build_whose_worker_is_killed_at_a_record_is_ended_by_another_and_stored_once",
    "other-worker": "e2e/test_team_on_another_worker.py"
    "::test_team_that_one_worker_built_is_used_by_another_that_was_started_before",
    "format": "integration/brain/test_teams.py::test_texts_of_a_team_are_in_prompts_as_they_were_written",
}
"""The tests that execute what needs a model, servers or workers of its own."""
EXPECTED = {
    "escalate": "refused: caller lacks grant; nothing registered",
    "name-collision": "refused; existing graph untouched",
    "name-sql": "stored literally or refused",
    "fork-bomb": "depth/quota limit, clear error",
    "code-in-spec": "never evaluated",
    "format": "literal",
    "tool-later": "team's grant does not grow by itself",
    "key-scope": "403",
    "crash": "either fully registered or absent; retry is idempotent",
    "other-worker": "works without restart",
    "empty": "422",
}
"""What the tests check, as the rows say it: a row that expects something else needs another test."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(module_database_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[LiveApi]:
    limits = Limits(teams_per_tenant=TEAMS)
    async with running_api(module_database_url, tmp_path_factory.mktemp("api"), SERVERS, limits=limits) as api:
        yield api


@pytest.mark.parametrize("cat", EXECUTED)
async def test_hostile_goal_comes_to_what_is_expected(api: LiveApi, cat: str) -> None:
    await EXECUTED[cat](api, ROWS[cat]["goal"])


async def test_each_row_is_executed_and_expects_what_is_checked() -> None:
    assert {cat: row["expect"] for cat, row in ROWS.items()} == EXPECTED
    assert EXECUTED.keys() | EXECUTED_BY.keys() == EXPECTED.keys()
    for test in EXECUTED_BY.values():
        file, _, name = test.partition("::")
        assert f"def {name}(" in (_TESTS / file).read_text("utf-8")
