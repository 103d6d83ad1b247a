"""What `/v1/keys` promises: at most what the caller has is handed on, tenants are apart, a secret is shown once."""

import asyncio
import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
import pytest_asyncio
from sqlalchemy import text

from starling.app.access import keys
from starling.core.principal import Scope
from starling.infra.postgres.audit import latest
from tests.integration.http.conftest import LiveApi, running_api
from tests.support.remote_servers import RemoteServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

EVERY: Final = [scope.value for scope in Scope]
KEY: Final = re.compile(r"sk-starling-[0-9a-f]{32}-[A-Za-z0-9_-]{43}")
NOBODYS: Final = "01a1f8ac-cbf4-7cdd-97b7-5ad5f772744e"
type Headers = dict[str, str]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop() -> AsyncGenerator[RemoteServer]:
    with RemoteServer().serving() as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(
    module_database_url: str, tmp_path_factory: pytest.TempPathFactory, shop: RemoteServer
) -> AsyncGenerator[LiveApi]:
    servers = {name: {"url": shop.url, "x-starling": {"effect": "read"}} for name in ("shop", "shop2")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "_CACHE_SECONDS", 0.2)
        async with running_api(module_database_url, tmp_path_factory.mktemp("api"), servers) as api:
            yield api


def shown(created: dict[str, Any]) -> Headers:
    return {"Authorization": f"Bearer {created['key']}"}


async def create(api: LiveApi, status: int = 201, caller: Headers | None = None, **spec: Any) -> Any:
    return await api.post("/v1/keys", status, json={"name": "a key", **spec}, headers=caller)


async def maker(api: LiveApi, **spec: Any) -> Headers:
    """Return what shows a key that may make keys."""
    rights: dict[str, Any] = {"scopes": EVERY} | spec
    return shown(await create(api, **rights))


async def listed(api: LiveApi, caller: Headers | None = None, **query: str) -> dict[str, dict[str, Any]]:
    return {key["id"]: key for key in (await api.get("/v1/keys", headers=caller, params=query))["keys"]}


async def status_of(api: LiveApi, key: Headers, path: str = "/v1/runs") -> int:
    async with api.client.get(path, headers=key) as response:
        return response.status


async def call(api: LiveApi, tool: str, caller: Headers) -> int:
    async with api.client.post("/execute", json={"tool_name": tool}, headers=caller) as response:
        return response.status


async def until_refused(api: LiveApi, key: Headers) -> None:
    """Wait until a key is no longer remembered."""
    async with asyncio.timeout(60):
        while await status_of(api, key) != 401:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_key_is_shown_once_and_its_secret_is_nowhere_else(api: LiveApi) -> None:
    body = {"name": "ci", "scopes": ["admin", "run"]}
    async with api.client.post("/v1/keys", json=body) as response:
        created = await response.json()
        assert response.headers["Cache-Control"] == "no-store"
    secret = created["key"][-43:]
    assert KEY.fullmatch(created["key"])
    await status_of(api, shown(created))

    answers = [await api.get("/v1/keys"), await api.get("/v1/keys", headers=shown(created))]
    answers.append(await api.delete(f"/v1/keys/{created['id']}"))
    entries = await latest(api.services.storage.engine, "default", limit=20)

    assert created["id"] in str(answers)
    assert secret not in f"{answers}{entries}"
    assert not [each for answer in answers for each in answer.get("keys", [answer]) if "key" in each or "hash" in each]
    async with api.services.storage.engine.connect() as connection:
        tables = await connection.scalars(text("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"))
        for table in tables.all():
            rows = await connection.scalars(text(f'SELECT t::text FROM "{table}" t'))  # noqa: S608 - names of tables
            assert not [row for row in rows if secret in row], table


@pytest.mark.parametrize("missing", EVERY)
async def test_key_gives_no_scope_that_it_lacks(api: LiveApi, missing: str) -> None:
    scopes = sorted(set(EVERY) - {missing})
    caller = await maker(api, scopes=scopes)
    before = await listed(api)

    for asked in ([missing], [*scopes, missing]):
        refused = await create(api, 403, caller, scopes=asked)
        assert (refused["code"], missing in refused["detail"] + refused["remedy"]) == ("forbidden", True)

    assert (await listed(api)).keys() == before.keys()


async def test_key_that_may_not_run_makes_no_key_by_default_and_is_told_what_to_ask_for(api: LiveApi) -> None:
    caller = await maker(api, scopes=["admin"])

    refused = await create(api, 403, caller)

    assert "run" in refused["detail"]
    assert refused["remedy"].startswith("Name `scopes` that it has: admin.")
    assert (await create(api, caller=caller, scopes=["admin"]))["scopes"] == ["admin"]


@pytest.mark.parametrize(
    ("own", "given"),
    [
        ({"servers": ["shop"]}, None),
        ({"servers": ["shop"]}, {"servers": ["shop2"]}),
        ({"servers": ["shop"]}, {"servers": ["shop", "shop2"]}),
        ({"servers": ["shop"]}, {"servers": ["shop.find"]}),
        ({"servers": ["shop"]}, {"servers": ["SHOP"]}),
        ({"servers": ["shop"]}, {"servers": ["shop "]}),
        ({"servers": ["shop"]}, {"servers": ["*"]}),
        ({"servers": ["shop"]}, {"servers": ["mcp_agent_shop"]}),
        ({"servers": ["shop"]}, {"tools": ["shop2.find"]}),
        ({"servers": ["shop"]}, {"tools": ["shop"]}),
        ({"servers": ["shop"]}, {"tools": ["*.find"]}),
        ({"servers": ["shop"]}, {"tools": ["*"]}),
        ({"tools": ["shop.find"]}, None),
        ({"tools": ["shop.find"]}, {"servers": ["shop"]}),
        ({"tools": ["shop.find"]}, {"servers": ["shop.find"]}),
        ({"tools": ["shop.find"]}, {"tools": ["shop.order"]}),
        ({"tools": ["shop.find"]}, {"tools": ["shop.find", "shop.order"]}),
        ({"tools": ["shop.find"]}, {"tools": ["shop.find2"]}),
        ({"tools": ["shop.find"]}, {"tools": ["shop.fin"]}),
        ({"servers": []}, None),
        ({"servers": []}, {"servers": ["shop"]}),
        ({}, None),
        ({}, {"tools": ["shop.find"]}),
    ],
)
async def test_key_gives_no_grant_beyond_its_own(api: LiveApi, own: Any, given: Any) -> None:
    caller, before = await maker(api, grant=own), await listed(api)
    spec: dict[str, Any] = {"grant": given} if given is not None else {}

    async with api.client.post("/v1/keys", json={"name": "more", **spec}, headers=caller) as response:
        assert response.status in (403, 422), await response.text()
    if given is None:
        refused = await create(api, 403, caller, grant=None)
        assert refused["remedy"].startswith("Name a `grant` within yours: ")

    assert (await listed(api)).keys() - before.keys() == set()


@pytest.mark.parametrize(
    ("own", "given", "callable_"),
    [
        (
            {"servers": ["shop"], "tools": ["shop2.find"]},
            {"tools": ["shop2.find", "shop.find"]},
            {"shop.find", "shop2.find"},
        ),
        (None, {"servers": ["shop"]}, {"shop.find", "shop.order"}),
        ({"servers": ["shop"]}, {"servers": ["shop"]}, {"shop.find", "shop.order"}),
        ({"servers": ["shop"]}, {"tools": ["shop.find"]}, {"shop.find"}),
        ({"servers": ["shop"]}, {"tools": []}, set[str]()),
        (None, {}, set[str]()),
        (None, None, {"shop.find", "shop.order", "shop2.find", "shop2.order"}),
    ],
)
async def test_grant_that_is_handed_on_holds_for_what_the_key_calls(
    api: LiveApi, shop: RemoteServer, own: Any, given: Any, callable_: set[str]
) -> None:
    caller = await maker(api, grant=own)
    created = await create(api, caller=caller, grant=given, scopes=["service", "run"])
    shop.called.clear()

    answers = {
        f"{server}.{tool}": await call(api, f"{server}.{tool}", shown(created))
        for server in ("shop", "shop2")
        for tool in ("find", "order")
    }
    tools = str(await api.get("/tools", headers=shown(created)))

    assert {tool for tool, status in answers.items() if status == 200} == callable_
    assert {tool for tool in answers if f"'{tool}'" in tools} == callable_
    assert len(shop.called) == len(callable_)


async def test_grandchild_has_no_more_than_the_key_that_made_its_maker(api: LiveApi, shop: RemoteServer) -> None:
    first = await maker(api, grant={"servers": ["shop"]}, expires_in=600)
    second = shown(await create(api, caller=first, scopes=EVERY, grant={"tools": ["shop.find"]}, expires_in=500))

    await create(api, 403, second, grant={"servers": ["shop"]}, expires_in=400)
    await create(api, 403, second, grant={"tools": ["shop.find"]}, expires_in=600)
    third = await create(api, caller=second, scopes=["service"], grant={"tools": ["shop.find"]}, expires_in=400)

    assert [await call(api, tool, shown(third)) for tool in ("shop.find", "shop.order")] == [200, 404]
    assert await status_of(api, shown(third), "/v1/keys") == 403


async def test_key_gives_no_longer_life_than_its_own(api: LiveApi) -> None:
    caller = await maker(api, expires_in=3600)

    for more in ({}, {"expires_in": None}, {"expires_in": 3660}, {"expires_in": 1_000_000_000}):
        refused = await create(api, 403, caller, **more)
        assert refused["code"] == "forbidden"
        assert refused["remedy"].startswith("Name an `expires_in` of at most ")
    created = await create(api, caller=caller, expires_in=1800)

    assert created["expires_at"] is not None


@pytest.mark.parametrize(
    "spec",
    [
        {"expires_in": -1},
        {"expires_in": 0},
        {"expires_in": 1.5},
        {"expires_in": 10**12},
        {"expires_in": "30d"},
        {"scopes": "admin"},
        {"scopes": None},
        {"scopes": []},
        {"scopes": ["root"]},
        {"tenant": ""},
        {"tenant": "*"},
        {"tenant": "../shop"},
        {"tenant": "shop\n"},
        {"tenant": "ѕhop"},  # noqa: RUF001 - a Cyrillic letter
        {"name": "a\x1b[2Jkey"},
        {"name": "x" * 201},
        {"name": 3},
        {"name": ""},
        {"grant": {"servers": "shop"}},
        {"grant": {"tools": ["shop\x00.find"]}},
        {"grant": []},
        {"grant": {"server": ["git"]}},
        {"key": "sk-starling-mine"},
        {"id": NOBODYS},
        {"state": "active"},
    ],
)
async def test_key_that_cannot_be_is_refused(api: LiveApi, spec: dict[str, Any]) -> None:
    before = await listed(api)

    problem = await create(api, 422, **spec)

    assert next(iter(spec)) in problem["detail"]
    assert await listed(api) == before


async def test_every_tool_of_a_server_is_granted_by_its_name_only(api: LiveApi) -> None:
    for tool in ("shop.*", "*", "shop.", ".find", "shop"):
        assert repr(tool) in (await create(api, 422, grant={"tools": [tool]}))["detail"]


async def test_tenants_see_make_and_revoke_only_their_own_keys(api: LiveApi) -> None:
    bank, mill = [await create(api, scopes=EVERY, tenant=tenant) for tenant in ("bank", "mill")]
    of_all = {tenant: (await listed(api, tenant=tenant)).keys() for tenant in ("bank", "mill")}

    own = await listed(api, shown(mill))
    made = await create(api, caller=shown(mill))
    for tenant in ("bank", "default", "*", "Mill", "mill.", "MILL"):
        async with api.client.post("/v1/keys", json={"name": "x", "tenant": tenant}, headers=shown(mill)) as response:
            assert response.status in (403, 422), tenant
        async with api.client.get("/v1/keys", params={"tenant": tenant}, headers=shown(mill)) as response:
            assert response.status in (403, 422), tenant
    named = await create(api, caller=shown(mill), tenant="mill")
    problem = await api.delete(f"/v1/keys/{bank['id']}", 404, headers=shown(mill))
    unknown = await api.delete(f"/v1/keys/{NOBODYS}", 404, headers=shown(mill))

    assert own.keys() == of_all["mill"]
    assert bank["id"] in of_all["bank"]
    assert (made["tenant"], named["tenant"]) == ("mill", "mill")
    assert problem["detail"].replace(bank["id"], "ID") == unknown["detail"].replace(NOBODYS, "ID")
    assert await status_of(api, shown(bank)) == 200
    assert (await listed(api, tenant="bank"))[bank["id"]]["state"] == "active"


async def test_revoked_key_is_refused_and_makes_none_even_at_once(api: LiveApi) -> None:
    created = await create(api, scopes=EVERY)
    key, before = shown(created), await listed(api)
    assert await status_of(api, key) == 200  # it is cached now

    revoked = await api.delete(f"/v1/keys/{created['id']}")
    async with api.client.post("/v1/keys", json={"name": "heir"}, headers=key) as response:
        at_once = response.status
    await until_refused(api, key)
    later = [await status_of(api, key, path) for path in ("/v1/runs", "/v1/keys", "/tools")]
    again = await api.delete(f"/v1/keys/{created['id']}")

    assert revoked["state"] == "revoked"
    assert at_once in (401, 403)
    assert later == [401, 401, 401]
    assert again["state"] == "revoked"
    after = await listed(api)
    assert after.keys() == before.keys()
    assert after[created["id"]]["state"] == "revoked"


async def test_expired_key_makes_none(api: LiveApi) -> None:
    created = await create(api, scopes=EVERY, expires_in=1)
    await status_of(api, shown(created))
    await asyncio.sleep(1.1)
    before = await listed(api)

    async with api.client.post("/v1/keys", json={"name": "heir", "expires_in": 1}, headers=shown(created)) as response:
        assert response.status in (401, 403)

    after = await listed(api)
    assert (after.keys(), after[created["id"]]["state"]) == (before.keys(), "expired")


async def test_run_of_a_revoked_key_calls_no_tool(api: LiveApi, shop: RemoteServer) -> None:
    created = await create(api, scopes=["run", "service"])
    assert await call(api, "shop.find", shown(created)) == 200
    shop.called.clear()

    await api.delete(f"/v1/keys/{created['id']}")
    await until_refused(api, shown(created))

    assert await call(api, "shop.find", shown(created)) == 401
    assert shop.called == []


@pytest.mark.parametrize(
    "switch",
    [
        {"kind": "tenant", "name": "forge"},
        {"kind": "tenant", "name": "*"},
        {"kind": "server", "name": "shop"},
        {"kind": "server", "name": "shop", "tenant": "forge"},
    ],
)
async def test_new_key_does_not_get_around_a_switch(api: LiveApi, shop: RemoteServer, switch: dict[str, str]) -> None:
    caller = await maker(api, tenant="forge")
    assert await call(api, "shop.find", caller) == 200
    body = {"tool_name": "shop.find"}
    await api.put("/v1/switches", json=switch | {"reason": "It is closed."})
    try:
        async with asyncio.timeout(60):  # until the worker has read of it
            while (await api.post("/execute", json=body, headers=caller))["status"] == "success":  # noqa: ASYNC110
                await asyncio.sleep(0.02)  # of so many requests a minute
        shop.called.clear()
        fresh = await create(api, caller=caller, scopes=["service"])
        answer = await api.post("/execute", json=body, headers=shown(fresh))
    finally:
        await api.delete("/v1/switches", 204, params=switch)

    assert answer["status"] != "success"
    assert "It is closed." in str(answer)
    assert shop.called == []


@pytest.mark.parametrize("scope", sorted(set(EVERY) - {"admin"}))
async def test_only_admins_open_the_door(api: LiveApi, scope: str) -> None:
    key, other = shown(await create(api, scopes=[scope])), await create(api)
    before = await listed(api)

    for method, path, body in (
        ("GET", "/v1/keys", None),
        ("POST", "/v1/keys", {"name": "x", "scopes": [scope]}),
        ("DELETE", f"/v1/keys/{other['id']}", None),
    ):
        assert (await api.send(method, path, 403, json=body, headers=key))["code"] == "forbidden"

    after = await listed(api)
    assert {key: value["state"] for key, value in after.items()} == {key: each["state"] for key, each in before.items()}


async def test_without_the_token_this_machine_manages_no_keys(database_url: str, tmp_path: Path) -> None:
    async with (
        running_api(database_url, tmp_path, {}) as api,
        aiohttp.ClientSession(api.url) as nobody,
    ):
        async with nobody.get("/v1/runs") as response:
            assert response.status == 200  # no key is active: it may do all but that
        for method, path in (("GET", "/v1/keys"), ("POST", "/v1/keys"), ("DELETE", f"/v1/keys/{NOBODYS}")):
            async with nobody.request(method, path, json={"name": "x"} if method == "POST" else None) as response:
                assert response.status in (401, 403)
        for header in ("X-Forwarded-For", "Forwarded", "Via", "X-Real-IP"):
            async with api.client.get("/v1/keys", headers={header: "127.0.0.1"}) as response:
                assert response.status == 401, header
        for header in ({"Host": "starling.example"}, {"Origin": "http://evil.example"}):
            async with api.client.get("/v1/keys", headers=header) as response:
                assert response.status == 401, header
        assert await listed(api) == {}


async def test_where_keys_are_required_the_token_makes_none(database_url: str, tmp_path: Path) -> None:
    async with running_api(database_url, tmp_path, {}, require_keys=True) as api:
        await create(api, 401)
        key = await api.key(Scope.ADMIN, Scope.RUN)

        assert (await create(api, caller=key))["tenant"] == "default"
        assert await status_of(api, {"Authorization": "Basic eDp5"}, "/v1/keys") == 401


async def test_who_made_and_revoked_a_key_is_in_the_audit_trail(api: LiveApi) -> None:
    caller = await create(api, scopes=EVERY)
    created = await create(api, caller=shown(caller))
    await api.delete(f"/v1/keys/{created['id']}", headers=shown(caller))

    revoked, made = await latest(api.services.storage.engine, "default", limit=2)

    assert [each.action for each in (made, revoked)] == ["key.create", "key.revoke"]
    assert created["id"] in (made.target, made.detail.get("id"))
    assert created["id"] in (revoked.target, revoked.detail.get("id"))
    assert caller["id"] in f"{made}"
    assert caller["id"] in f"{revoked}"


async def test_name_of_the_path_has_to_be_a_key_s_id(api: LiveApi) -> None:
    for wrong in ("all", "*", "%2e%2e", "00000000", "sk-starling-x"):
        async with api.client.delete(f"/v1/keys/{wrong}") as response:
            assert response.status in (404, 405, 422), wrong
    await api.delete("/v1/keys", 405)
    await api.get("/v1/keys", 422, params={"tenent": "bank"})
    await api.get("/v1/keys", 422, params={"tenant": "a\x00b"})
