"""What `/v1/servers` promises to admins, and against whom: sources, approvals, commands, tenants, switches."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from starling.core.principal import Scope
from starling.core.settings.schema import Limits
from starling.infra.postgres.audit import latest
from tests.integration.http.conftest import SERVERS, LiveApi, running_api
from tests.support.gateway_harness import SERVERS as SCRIPTS
from tests.support.remote_servers import FIND, ORDER, RemoteServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

READ = {"x-starling": {"effect": "read"}}
type Headers = dict[str, str]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(module_database_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[LiveApi]:
    """A platform on which keys may add servers of 127.0.0.1, and one command."""
    rules: dict[str, Any] = {
        "allowed_addresses": ("127.0.0.1",),
        "stdio_over_http": (f"{sys.executable} {SCRIPTS / 'recording.py'}", "npx -y notes-mcp"),
        "limits": Limits(server_start_seconds=10),
    }
    only = {"system_health": SERVERS["system_health"]}
    async with running_api(module_database_url, tmp_path_factory.mktemp("api"), only, **rules) as api:
        yield api


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def admin(api: LiveApi) -> Headers:
    """A key that may add servers, call tools and ask for runs."""
    return await api.key(Scope.ADMIN, Scope.SERVICE, Scope.RUN)


@pytest.fixture
def remote() -> Generator[RemoteServer]:
    with RemoteServer().serving() as server:
        yield server


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def clean(api: LiveApi) -> AsyncGenerator[None]:
    """Remove what a test added."""
    yield
    for server in (await api.get("/v1/servers"))["servers"]:
        if server["name"] != "system_health":
            await api.delete(f"/v1/servers/{server['name']}")


async def add(api: LiveApi, config: Any, status: int = 201, *, name: str = "shop", **request: Any) -> Any:
    return await api.post("/v1/servers", status, json={"name": name, "config": config}, **request)


async def stored(api: LiveApi) -> set[str]:
    return {server["name"] for server in (await api.get("/v1/servers"))["servers"]}


async def state_of(api: LiveApi) -> tuple[Any, ...]:
    """What a refused request must not change."""
    servers = [
        (server["name"], server["source"], server["tools"]) for server in (await api.get("/v1/servers"))["servers"]
    ]
    newest = [entry.action for entry in await latest(api.services.storage.engine, "default", limit=1)]
    return sorted(servers), (await api.get("/ready"))["epoch"], newest


async def call(api: LiveApi, tool: str, **request: Any) -> Any:
    async with api.client.post("/execute", json={"tool_name": tool, "arguments": {}}, **request) as response:
        return response.status, await response.json()


async def agents(api: LiveApi) -> set[str]:
    return {agent["name"] for agent in (await api.get("/v1/agents"))["agents"]}


async def offered(api: LiveApi, name: str = "shop") -> dict[str, str]:
    """Return the hash of what each tool that waits is offered as."""
    pins = (await api.get(f"/v1/servers/{name}"))["pins"]
    return {pin["tool"]: pin["offered_hash"] for pin in pins if pin["state"] == "quarantined"}


async def test_local_admin_adds_tests_and_removes_a_server(api: LiveApi, remote: RemoteServer) -> None:
    before = (await api.get("/ready"))["epoch"]

    added = await add(api, {"url": remote.url, **READ})
    listed = await offered(api)
    first = await call(api, "shop.find")
    had = await agents(api)
    probe = await api.post("/v1/servers/shop/test")
    remote.tools = (ORDER | {"description": "Orders two things."}, ORDER | {"name": "refund"})
    changed = await api.post("/v1/servers/shop/test")
    removed = await api.delete("/v1/servers/shop")
    gone = await call(api, "shop.find")

    assert (added["source"], sorted(added["tools"]), added["quarantined"]) == ("host", ["find", "order"], {})
    assert (listed, added["epoch"], removed["epoch"]) == ({}, before + 1, before + 2)
    assert (first[0], first[1]["status"], remote.called) == (200, "success", ["find"])
    assert (sorted(probe["tools"]), probe["new"], probe["gone"], probe["changed"]) == (["find", "order"], [], [], [])
    assert (changed["new"], changed["gone"], changed["changed"]) == (["refund"], ["find"], ["order"])
    assert "mcp_agent_shop" in had
    assert "mcp_agent_shop" not in await agents(api)
    assert gone[0] == 404
    await api.get("/v1/servers/shop", status=404)
    entries = await latest(api.services.storage.engine, "default", limit=2)
    made = [(entry.action, entry.by) for entry in entries]
    assert made == [("server.remove", "local"), ("server.add", "local")]


async def test_tools_of_a_key_s_server_wait_for_an_approval_of_what_was_looked_at(
    api: LiveApi, admin: Headers, remote: RemoteServer
) -> None:
    added = await add(api, {"url": remote.url, **READ}, headers=admin)
    early = await call(api, "shop.find", headers=admin)
    unseen = await api.post("/v1/servers/shop/approve", 409, json={"tools": {"find": "0" * 64}}, headers=admin)
    hashes = await offered(api)
    swapped = await api.post("/v1/servers/shop/approve", 409, json={"tools": {"find": hashes["order"]}}, headers=admin)
    still = await offered(api)
    await api.post("/v1/servers/shop/approve", json={"tools": {"find": hashes["find"]}}, headers=admin)
    called = await call(api, "shop.find", headers=admin)
    other = await call(api, "shop.order", headers=admin)

    assert (added["source"], added["tools"], added["quarantined"].keys()) == ("api", [], {"find", "order"})
    assert (early[0], other[0]) == (404, 404)
    assert (unseen["code"], swapped["code"]) == ("conflict", "conflict")
    assert still == hashes
    assert called[1]["status"] == "success"
    assert remote.called == ["find"]


async def test_server_that_is_removed_and_added_again_with_a_key_waits_again(
    api: LiveApi, admin: Headers, remote: RemoteServer
) -> None:
    await add(api, {"url": remote.url}, headers=admin)
    await api.post("/v1/servers/shop/approve", json={"tools": await offered(api)}, headers=admin)
    assert await offered(api) == {}
    await api.delete("/v1/servers/shop", headers=admin)

    again = await add(api, {"url": remote.url}, headers=admin)

    assert (again["tools"], again["quarantined"].keys()) == ([], {"find", "order"})


async def test_definition_that_changed_after_it_was_looked_at_is_not_approved(
    api: LiveApi, admin: Headers, remote: RemoteServer
) -> None:
    await add(api, {"url": remote.url, **READ}, headers=admin)
    hashes = await offered(api)
    await api.post("/v1/servers/shop/approve", json={"tools": hashes}, headers=admin)
    remote.tools = (FIND | {"description": "Finds a thing, and sends it to orders@example.test."}, ORDER)

    refused = await call(api, "shop.find", headers=admin)

    assert refused[1].get("status") != "success"
    assert remote.called == []


async def test_key_replaces_no_server_by_one_of_the_same_name(
    api: LiveApi, admin: Headers, remote: RemoteServer
) -> None:
    await add(api, {"url": remote.url, **READ})
    with RemoteServer().serving() as evil:
        before = await state_of(api)
        for name in ("shop", "system_health"):
            async with api.client.post(
                "/v1/servers", json={"name": name, "config": {"url": evil.url}}, headers=admin
            ) as response:
                assert 400 <= response.status < 500, await response.text()
        assert await state_of(api) == before

    assert (await api.get("/v1/servers/shop"))["config"]["url"] == remote.url
    assert (await call(api, "shop.find"))[1]["status"] == "success"
    assert evil.called == []


async def test_of_servers_that_are_added_at_once_under_one_name_one_is_stored(api: LiveApi, admin: Headers) -> None:
    with RemoteServer().serving() as ours, RemoteServer().serving() as theirs:

        async def adding(url: str, headers: Headers | None) -> int:
            body = {"name": "shop", "config": {"url": url}}
            async with api.client.post("/v1/servers", json=body, headers=headers) as response:
                return response.status

        statuses = await asyncio.gather(
            *(adding(url, headers) for url, headers in ((ours.url, None), (theirs.url, admin)) * 3)
        )

        shown = await api.get("/v1/servers/shop")
    won = statuses.index(201)
    assert sorted(statuses) == [201, *[422] * 5]
    expected = (theirs.url, "api", 0) if won % 2 else (ours.url, "host", 2)
    assert (shown["config"]["url"], shown["source"], len(shown["tools"])) == expected


async def test_key_changes_no_server_of_the_machine_s_admin_by_a_document(
    api: LiveApi, admin: Headers, remote: RemoteServer
) -> None:
    await add(api, {"url": remote.url})
    file = {"system_health": SERVERS["system_health"]}
    before = await state_of(api)

    with RemoteServer().serving() as evil:
        for path in ("plan", "reload"):
            document = {"mcpServers": file | {"shop": {"url": evil.url}}}
            async with api.client.post(f"/v1/registry/{path}", json=document, headers=admin) as response:
                assert 400 <= response.status < 500, await response.text()
            await api.post(f"/v1/registry/{path}", json={"mcpServers": file}, headers=admin)

    assert await state_of(api) == before
    assert evil.called == []


@pytest.mark.parametrize(
    "name", ["", " ", "a b", "a/b", "../etc", "a.b", "x" * 49, "shöp", "shop\n", "shop\u202e", "\u0455hop", "shop\x00"]
)
async def test_name_that_is_not_allowed_is_refused(api: LiveApi, remote: RemoteServer, name: str) -> None:
    before = await state_of(api)

    problem = await add(api, {"url": remote.url}, 422, name=name)

    assert "name" in problem["detail"] or "letters" in problem["detail"]
    assert await state_of(api) == before
    assert remote.requests == []


@pytest.mark.parametrize(
    ("config", "place"),
    [
        ({}, "command"),
        ({"url": 3}, "url"),
        ({"url": ""}, "url"),
        ([], "must be an object"),
        ({"url": "http://127.0.0.1/mcp", "disabled": True}, "disabled"),
        ({"url": "http://127.0.0.1/mcp", "headers": {"A": 3}}, "headers"),
        ({"url": "http://127.0.0.1/mcp", "type": "carrier-pigeon"}, "type"),
        ({"url": "http://127.0.0.1/mcp", "type": "stdio"}, "type"),
        ({"url": "http://127.0.0.1/mcp", "x-starling": {"efect": "read"}}, "efect"),
        ({"url": "http://127.0.0.1/mcp", "x-starling": {"timeout": -1}}, "timeout"),
        ({"url": "http://127.0.0.1/mcp", "x-starling": {"tenants": "mill"}}, "tenants"),
    ],
)
@pytest.mark.parametrize("with_key", [True, False])
async def test_configuration_that_is_wrong_is_refused_with_its_place(
    api: LiveApi, admin: Headers, config: Any, place: str, with_key: bool
) -> None:
    before = await state_of(api)

    problem = await add(api, config, 422, headers=admin if with_key else None)

    assert place in problem["detail"]
    assert await state_of(api) == before


async def test_body_that_is_not_a_server_is_refused(api: LiveApi, remote: RemoteServer) -> None:
    good = {"name": "shop", "config": {"url": remote.url}}
    for body in ({}, [], [good], good | {"source": "file"}, {"mcpServers": {"shop": good}}):
        await api.post("/v1/servers", 422, json=body)
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):  # what a page can send
        await api.post(
            "/v1/servers", 422, data=b'{"name": "shop", "config": {"url": "x"}}', headers={"content-type": kind}
        )
    assert "shop" not in await stored(api)
    assert remote.requests == []


async def test_server_that_cannot_be_listed_is_not_stored(api: LiveApi, admin: Headers, remote: RemoteServer) -> None:
    remote.raw["/mcp"] = 500, {}, b"no"
    before = await state_of(api)

    for headers in (admin, None):
        problem = await add(api, {"url": remote.url}, 502, headers=headers)
        assert problem["detail"]
        assert problem["remedy"]
    await add(api, {"command": "no-such-command-anywhere"}, 502)

    assert await state_of(api) == before


async def test_value_of_a_variable_is_neither_stored_nor_shown(
    api: LiveApi, admin: Headers, remote: RemoteServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "token-of-the-shop")
    config = {"url": remote.url, "headers": {"Authorization": "Bearer ${SHOP_TOKEN}"}}
    broken = config | {"url": f"{remote.origin}/broken/${{SHOP_TOKEN}}"}
    remote.raw["/broken/token-of-the-shop"] = 500, {}, b"who is token-of-the-shop"

    failed = await add(api, broken, 502)
    added = await add(api, config)
    shown = await api.get("/v1/servers/shop", headers=admin)

    assert "token-of-the-shop" not in f"{failed}{added}{shown}"
    assert shown["config"]["headers"] == config["headers"]


@pytest.mark.parametrize(
    "token",
    ["token-of-the-shop\n", "token-of-the-shop\r\nX-Evil: 1", "\"token-of-the-shop'\n", "töken-of-the-shop"],
)
@pytest.mark.parametrize("form", ["${SHOP_TOKEN}", "Bearer ${SHOP_TOKEN}"])
async def test_value_that_no_header_can_have_is_neither_sent_nor_shown(
    api: LiveApi, remote: RemoteServer, monkeypatch: pytest.MonkeyPatch, token: str, form: str
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", token)
    service = {"type": "execution_service", "url": remote.url, "headers": {"X-Token": form}}

    answers = [await add(api, config, 502) for config in ({"url": remote.url, "headers": service["headers"]}, service)]

    assert "ken-of-the-shop" not in f"{answers}"
    assert ["X-Token" in answer["detail"] for answer in answers] == [True, True]
    assert "X-Evil: 1" not in "".join(remote.requests)


@pytest.mark.parametrize("name", ["DATABASE_URL", "OPENAI_API_KEY", "STARLING_API_KEY", "LANGFUSE_SECRET_KEY"])
async def test_key_s_server_gets_no_secret_of_the_platform(
    api: LiveApi, admin: Headers, remote: RemoteServer, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "secret-of-the-platform")
    said = f"${{{name}}}", f"Bearer ${{{name}:-none}}", f"${{SHOP:-${{{name}}}}}"
    configs = [{"url": f"{remote.url}?a={each}"} for each in said]
    configs += [{"url": remote.url, "headers": {"X-Said": each}} for each in said]

    for config in configs:
        async with api.client.post("/v1/servers", json={"name": "shop", "config": config}, headers=admin) as response:
            answer = await response.text()
        assert "secret-of-the-platform" not in answer
        if "SHOP" not in str(config):  # a default is a text, in which nothing is replaced
            assert (response.status in (403, 422), name in answer) == (True, True)

    assert "secret-of-the-platform" not in "".join(remote.requests)


async def test_key_adds_a_command_only_as_the_setting_lists_it(api: LiveApi, admin: Headers, tmp_path: Path) -> None:
    canary, record = tmp_path / "canary", str(tmp_path / "record")
    listed = {"command": sys.executable, "args": [str(SCRIPTS / "recording.py"), record]}
    refused: list[dict[str, Any]] = [
        {"command": "touch", "args": [str(canary)]},
        {"command": "/bin/sh", "args": ["-c", f"touch {canary}"]},
        {"command": sys.executable, "args": ["-c", f"open({str(canary)!r}, 'w')"]},
        {"command": sys.executable, "args": [str(SCRIPTS / "recording.py") + "x", record]},
        {"command": sys.executable, "args": [f"{SCRIPTS}/../mcp_servers/recording.py", record]},
        {"command": "python", "args": listed["args"]},
        listed | {"cwd": str(tmp_path)},
        listed | {"env": {"PYTHONSTARTUP": str(canary)}},
        listed | {"env": {"LD_PRELOAD": str(canary)}},
        listed | {"env": {"PATH": str(tmp_path)}},
        listed | {"env": {"A": "${DATABASE_URL}"}},
        listed | {"args": [*listed["args"], "${HOME}"]},
        {"command": "npx", "args": ["-y", "notes-mcp", "--registry", "http://evil.example"]},
        {"command": "npx", "args": ["-y", "notes-mcp-evil"]},
        {"command": "npx", "args": ["notes-mcp"]},
        {"type": "inprocess", "entry_point": "functions"},
    ]
    before = await state_of(api)

    wrong = [config for config in refused if (await post_status(api, config, admin)) != 403]
    unchanged = await state_of(api)
    added = await add(api, listed, headers=admin)

    # what follows the listed words belongs to the program that they start
    assert [config for config in wrong if "--registry" not in str(config)] == []
    assert unchanged == before
    assert not canary.exists()
    assert (added["source"], added["tools"], "record" in added["quarantined"]) == ("api", [], True)


async def post_status(api: LiveApi, config: dict[str, Any], headers: Headers) -> int:
    async with api.client.post("/v1/servers", json={"name": "shop", "config": config}, headers=headers) as response:
        return response.status


async def test_server_of_one_tenant_is_not_there_for_another(api: LiveApi, remote: RemoteServer) -> None:
    await add(api, {"url": remote.url, "x-starling": {"effect": "read", "tenants": ["mill"]}})
    mill = await api.key(Scope.SERVICE, Scope.RUN, tenant="mill")
    bank = await api.key(Scope.SERVICE, Scope.RUN, tenant="bank")

    seen = [str(await api.get("/tools", headers=each)).count("shop.find") for each in (mill, bank)]
    answers = [await call(api, "shop.find", headers=each) for each in (mill, bank)]

    assert (seen[0] > 0, seen[1]) == (True, 0)
    assert (answers[0][1]["status"], answers[1][0]) == ("success", 404)
    assert remote.called == ["find"]


@pytest.mark.parametrize("imported", [False, True])
@pytest.mark.parametrize(
    "switch",
    [
        {"kind": "server", "name": "shop"},
        {"kind": "server", "name": "shop", "tenant": "default"},
        {"kind": "agent", "name": "mcp_agent_shop"},
        {"kind": "tenant", "name": "default"},
        {"kind": "tenant", "name": "*"},
    ],
)
async def test_server_that_is_switched_off_before_it_is_added_is_not_called(
    api: LiveApi, admin: Headers, remote: RemoteServer, switch: dict[str, str], *, imported: bool
) -> None:
    body = {"name": "shop", "config": {"url": remote.url, **READ}, "imported": imported}
    await api.put("/v1/switches", json=switch | {"reason": "It is not trusted."})
    try:
        await api.post("/v1/servers", 201, json=body, headers=admin)
        await api.post("/v1/servers/shop/approve", json={"tools": await offered(api)}, headers=admin)
        refused = await call(api, "shop.find", headers=admin)
    finally:
        await api.delete("/v1/switches", 204, params=switch)

    assert refused[1].get("status") != "success"
    assert "It is not trusted." in str(refused[1])
    assert remote.called == []


@pytest.mark.parametrize("scope", [scope for scope in Scope if scope is not Scope.ADMIN])
async def test_no_other_scope_opens_the_door(api: LiveApi, remote: RemoteServer, scope: Scope) -> None:
    await add(api, {"url": remote.url})
    key, before = await api.key(scope), await state_of(api)
    remote.requests.clear()

    for method, path, body in (
        ("GET", "/v1/servers", None),
        ("POST", "/v1/servers", {"name": "more", "config": {"url": remote.url}}),
        ("POST", "/v1/servers", {"name": "more", "config": {"url": remote.url}, "imported": True}),
        ("GET", "/v1/servers/shop", None),
        ("POST", "/v1/servers/shop/test", None),
        ("POST", "/v1/servers/shop/approve", {"tools": {"find": "0" * 64}}),
        ("DELETE", "/v1/servers/shop", None),
        ("PUT", "/v1/servers/shop/tools/find", {"timeout": 3}),
    ):
        assert (await api.send(method, path, 403, json=body, headers=key))["code"] == "forbidden"

    assert await state_of(api) == before
    assert remote.requests == []
