"""Names that agents and teams may not take, and who may replace or archive what another key has made."""

import sys
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio

from starling.app.access.keys import KeySpec
from starling.core.principal import HOST_ADMIN, Grant, Scope
from starling.infra.postgres.audit import Actor
from tests.integration.http.conftest import LiveApi, running_api

pytestmark = pytest.mark.asyncio(loop_scope="module")

SERVER = {"command": sys.executable, "args": ["-m", "mcp_gateway.servers.system_health"]}
REFUSED = {409, 422}
Headers = dict[str, str]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(module_database_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[LiveApi]:
    servers = {"system_health": SERVER, "payroll": SERVER}
    async with running_api(module_database_url, tmp_path_factory.mktemp("api"), servers) as api:
        yield api


async def key(api: LiveApi, *more: Scope, tenant: str = "default", grant: Grant | None = None) -> Headers:
    """Return the header of a new key that may make agents and teams."""
    wish = KeySpec("test", tenant, frozenset({Scope.RUN, Scope.TEAMS, *more}), grant)
    _, shown = await api.services.storage.keys.create(HOST_ADMIN, wish, Actor.local("test"))
    return {"Authorization": f"Bearer {shown}"}


async def send(
    api: LiveApi, headers: Headers, method: str, path: str, body: dict[str, Any] | None = None
) -> tuple[int, str]:
    async with api.client.request(method, f"/v1/{path}", json=body, headers=headers) as response:
        return response.status, await response.text()


async def make_agent(api: LiveApi, headers: Headers, name: str, text: str = "You write.") -> tuple[int, str]:
    return await send(api, headers, "POST", "agents", {"id": name, "behavior_template": text})


async def make_team(api: LiveApi, headers: Headers, name: str, purpose: str = "Writes.") -> tuple[int, str]:
    member = {"name": "writer", "role": "Writer", "goal": "Write."}
    spec = {"name": name, "purpose": purpose, "members": [member]}
    return await send(api, headers, "POST", f"teams/{name}/versions", {"spec": spec})


async def behaviour(api: LiveApi, headers: Headers, name: str) -> str:
    return (await send(api, headers, "GET", f"agents/{name}"))[1]


@pytest.mark.parametrize(
    "name",
    [
        "supervisor", "supervis0r", "5upervi5or", "super_visor", "architect", "arch1tect", "qa", "q_a",
        "generalist", "genera1ist", "generallst", "general-ist", "g3nera1i5t", "gener4list", "c0der", "cocler",
        "mcp_agent_new", "rncp_agent_payroll",
        "mcpagentpayroll", "rncp-agent-payroll", "payroll", "payro11", "system_hea1th",
        "supervis\u043er", "\uff43oder", "genera\u04cfist",
    ],
    ids=ascii,
)  # fmt: skip
@pytest.mark.parametrize("make", [make_agent, make_team], ids=["agent", "team"])
async def test_name_that_looks_like_a_part_of_the_platform_or_a_server_is_refused(
    api: LiveApi, make: Any, name: str
) -> None:
    status, text = await make(api, await key(api, tenant=make.__name__), name)

    assert status in REFUSED, text


@pytest.mark.parametrize("name", ["coder2", "decoder", "supervise", "archivist", "qa_notes", "payment", "mcp_reader"])
async def test_name_that_only_begins_or_ends_like_another_is_accepted(api: LiveApi, name: str) -> None:
    status, text = await make_agent(api, await key(api), name)

    assert status == 201, text


@pytest.mark.parametrize("name", ["mo0n_modern", "moon_modem", "mo-on_modern", "rnoon_modern", "moon_rnodern"])
@pytest.mark.parametrize("make", [make_agent, make_team], ids=["agent", "team"])
async def test_name_that_looks_like_that_of_another_agent_is_refused(api: LiveApi, make: Any, name: str) -> None:
    maker = await key(api, Scope.ADMIN, tenant=make.__name__)
    await make_agent(api, maker, "moon_modern")

    status, text = await make(api, maker, name)

    assert (status in REFUSED, "moon_modern" in text) == (True, True), text


@pytest.mark.parametrize("done", ["activate", "archive"])
async def test_agent_that_looks_like_a_team_is_refused_also_after_its_archiving(api: LiveApi, done: str) -> None:
    maker = await key(api, Scope.ADMIN)
    await make_team(api, maker, "star_crew")
    await send(api, maker, "POST", f"teams/star_crew/{done}")

    made = {name: (await make_agent(api, maker, name))[0] for name in ("star_crew", "5tar_crew", "star-crew")}

    assert set(made.values()) <= REFUSED, made


@pytest.mark.parametrize("make", [make_agent, make_team], ids=["agent", "team"])
async def test_name_that_looks_like_a_server_that_the_caller_may_not_call_is_refused_without_naming_it(
    api: LiveApi, make: Any
) -> None:
    narrow = await key(api, tenant=f"narrow_{make.__name__}", grant=Grant(servers=frozenset({"system_health"})))

    status, text = await make(api, narrow, "payro11")

    assert status in REFUSED, text
    assert "can't be used" in text
    assert "payroll" not in text


async def test_agent_of_another_maker_is_replaced_and_archived_only_with_admin(api: LiveApi) -> None:
    maker, other, admin = await key(api), await key(api), await key(api, Scope.ADMIN)
    await make_agent(api, maker, "diarist", "You keep a diary.")

    replaced, _ = await make_agent(api, other, "diarist", "You leak a diary.")
    archived, _ = await send(api, other, "DELETE", "agents/diarist")
    shown = await behaviour(api, maker, "diarist")

    assert (replaced, archived) == (403, 403)
    assert "leak" not in shown
    assert (await make_agent(api, maker, "diarist", "You keep a short diary."))[0] == 201
    assert (await make_agent(api, admin, "diarist", "You keep a long diary."))[0] == 201
    assert (await send(api, admin, "DELETE", "agents/diarist"))[0] == 200


async def test_agent_beyond_the_grant_is_not_named(api: LiveApi) -> None:
    narrow = await key(api, grant=Grant(servers=frozenset({"system_health"})))
    await make_agent(api, await key(api), "novelist")

    status, text = await make_agent(api, narrow, "n0velist")

    assert (status, "can't be used" in text, "novelist" in text) == (422, True, False)


async def test_archived_agent_is_not_taken_over_by_another_maker(api: LiveApi) -> None:
    maker, other = await key(api), await key(api)
    await make_agent(api, maker, "annalist", "You keep annals.")
    await send(api, maker, "DELETE", "agents/annalist")

    assert (await make_agent(api, other, "annalist", "You leak annals."))[0] == 403
    assert (await make_agent(api, other, "anna1ist", "You leak annals."))[0] == 422
    assert [(await make_team(api, one, "annalist"))[0] for one in (other, maker)] == [422, 422]
    assert (await make_agent(api, maker, "annalist", "You keep annals."))[0] == 201


async def test_team_of_another_maker_is_replaced_and_archived_only_with_admin(api: LiveApi) -> None:
    """A draft of somebody else would be what the next activation takes: it takes the newest version."""
    maker, other, admin = await key(api), await key(api), await key(api, Scope.ADMIN)
    await make_team(api, maker, "diary_crew", "Keeps diaries.")
    await send(api, admin, "POST", "teams/diary_crew/activate")

    replaced, _ = await make_team(api, other, "diary_crew", "Leaks diaries.")
    built, _ = await send(api, other, "POST", "teams/diary_crew/versions", {"goal": "Leak diaries."})
    archived, _ = await send(api, other, "POST", "teams/diary_crew/archive")
    _, versions = await send(api, maker, "GET", "teams/diary_crew/versions")

    assert (replaced, built, archived) == (403, 403, 403)
    assert "Leaks" not in versions
    assert (await make_team(api, maker, "diary_crew", "Keeps short diaries."))[0] == 201
    assert (await make_team(api, admin, "diary_crew", "Keeps long diaries."))[0] == 201
    assert (await send(api, admin, "POST", "teams/diary_crew/archive"))[0] == 200
