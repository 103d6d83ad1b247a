"""Addresses of servers that come over HTTP are connected to as they were checked, whatever a name or a server says."""

import gzip
import json
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from starling.core.principal import Scope
from starling.core.settings.schema import Limits
from tests.integration.http.conftest import LiveApi, running_api
from tests.support.remote_servers import Names, RemoteServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROWS = [
    json.loads(line)
    for line in (Path(__file__).parents[2] / "data/security/ssrf_urls.jsonl").read_text("utf-8").splitlines()
]
READ = {"x-starling": {"effect": "read"}}
NOT_PUBLIC = (
    "169.254.169.254", "[fe80::1]", "[fe80::1%25lo]", "[::1]",
    "[::ffff:169.254.169.254]", "[::127.0.0.1]", "[64:ff9b::a9fe:a9fe]", "[64:ff9b:1::7f00:1]",
    "[2001:0:7f00:1::80ff:fffe]", "[ff02::1]", "224.0.0.1", "172.31.255.255", "198.18.0.1",
    "192.0.2.1", "2130706433", "0x7f.1", "017700000001", "127.1", "127。0。0。1", "①②⑦.0.0.1",
)  # fmt: skip
type Headers = dict[str, str]
type Inside = tuple[RemoteServer, RemoteServer]  # the canary, and what may be reached


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(module_database_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[LiveApi]:
    """A platform whose keys may reach 127.0.0.2 and one name of the inside, and no other private address."""
    rules: dict[str, Any] = {
        "allowed_addresses": ("127.0.0.2", "shop.internal"),
        "limits": Limits(server_start_seconds=3),
    }
    async with running_api(module_database_url, tmp_path_factory.mktemp("api"), {}, **rules) as api:
        yield api


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def admin(api: LiveApi) -> Headers:
    return await api.key(Scope.ADMIN, Scope.SERVICE, Scope.RUN)


@pytest.fixture
def canary() -> Generator[RemoteServer]:
    """A server of the inside, which nobody may reach."""
    with RemoteServer().serving() as server:
        yield server


@pytest.fixture
def remote(canary: RemoteServer) -> Generator[RemoteServer]:
    """The server that may be reached, on the same port as the canary."""
    with RemoteServer("127.0.0.2", canary.port).serving() as server:
        yield server


@pytest.fixture
def inside(canary: RemoteServer, remote: RemoteServer) -> Inside:
    return canary, remote


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    return Names.installed(monkeypatch)


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def clean(api: LiveApi) -> AsyncGenerator[None]:
    """Remove what a test added."""
    yield
    for server in (await api.get("/v1/servers"))["servers"]:
        await api.delete(f"/v1/servers/{server['name']}")


async def add(api: LiveApi, config: dict[str, Any], **request: Any) -> tuple[int, Any]:
    body = {"name": "shop", "config": config, "imported": "headers" not in request}
    async with api.client.post("/v1/servers", json=body, **request) as response:
        return response.status, await response.json()


async def added(api: LiveApi, config: dict[str, Any], admin: Headers) -> None:
    """Add a server whose tools are all approved."""
    status, answer = await add(api, config, headers=admin)
    assert status == 201, answer
    pins = (await api.get("/v1/servers/shop"))["pins"]
    await api.post("/v1/servers/shop/approve", json={"tools": {pin["tool"]: pin["offered_hash"] for pin in pins}})


async def call(api: LiveApi, tool: str, **request: Any) -> Any:
    return await api.post("/execute", json={"tool_name": tool, "arguments": {}}, **request)


async def nothing_is_stored(api: LiveApi) -> bool:
    return (await api.get("/v1/servers"))["servers"] == []


@pytest.fixture(scope="module")
def bomb() -> bytes:
    return gzip.compress(b"[" * 100_000_000)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: ascii(row["url"]))
async def test_address_of_the_list_reaches_nothing_of_the_inside(
    api: LiveApi, admin: Headers, inside: Inside, names: Names, row: Any, bomb: bytes
) -> None:
    canary, remote = inside
    for name in ("localhost", "instance-data", "localtest.me"):
        names.add(name, ["127.0.0.1"])
    for status in (301, 303, 308):
        remote.redirect(f"/{status}", status, f"{canary.origin}/canary")
    remote.redirect("/loop", 307, f"{remote.origin}/loop")
    remote.raw["/gzip"] = 200, {"Content-Encoding": "gzip"}, bomb
    url = row["url"].replace(":8999", f":{canary.port}").replace("://REDIRECTOR", f"://127.0.0.2:{canary.port}")
    url = url.replace("://BOMB", f"://127.0.0.2:{canary.port}")
    config: dict[str, Any] = {"url": url, "headers": {"Authorization": "Bearer of-the-shop"}}

    status, answer = await add(api, config, headers=admin)

    assert status in ((403, 422) if row["cat"] == "form" else (403, 422, 502)), answer
    assert canary.requests == []
    assert await nothing_is_stored(api)


@pytest.mark.parametrize("door", ["/v1/servers", "/v1/registry/plan", "/v1/registry/reload"])
async def test_literal_address_that_is_not_public_is_refused_at_once_at_each_door(
    api: LiveApi, admin: Headers, canary: RemoteServer, door: str
) -> None:
    for host in NOT_PUBLIC:
        config = {"url": f"http://{host}:{canary.port}/mcp"}
        body = {"name": "shop", "config": config} if door == "/v1/servers" else {"mcpServers": {"shop": config}}
        async with api.client.post(door, json=body, headers=admin) as response:
            assert response.status in (403, 422), (host, await response.text())

    assert canary.requests == []
    assert await nothing_is_stored(api)


@pytest.mark.parametrize(
    "answer",
    [
        ["127.0.0.1"],
        ["::1"],
        ["::ffff:127.0.0.1"],
        ["64:ff9b::7f00:1"],
        ["2002:7f00:1::"],
        ["93.184.216.34", "127.0.0.1"],
        ["127.0.0.1", "93.184.216.34"],
        ["127.0.0.2", "127.0.0.1"],
        ["fe80::1%lo"],
        ["169.254.169.254"],
        ["0.0.0.0"],  # noqa: S104 - a name that leads there
    ],
)
async def test_name_with_an_address_of_the_inside_is_refused_and_the_address_is_not_shown(
    api: LiveApi, admin: Headers, canary: RemoteServer, remote: RemoteServer, names: Names, answer: list[str]
) -> None:
    names.add("rebind.example", answer)

    for kind, request in (("http", {}), *((kind, {"headers": admin}) for kind in ("http", "sse", "execution_service"))):
        config = {"type": kind, "url": f"http://rebind.example:{canary.port}/mcp"}
        status, problem = await add(api, config, **request)
        assert status in (403, 502)
        assert not [address for address in answer if address in json.dumps(problem)]

    assert (canary.requests, remote.requests) == ([], [])
    assert await nothing_is_stored(api)


@pytest.mark.parametrize("good", [1, 2, 3, 4, 5, 6])
async def test_name_is_resolved_once_for_a_connection_and_that_address_is_connected_to(
    api: LiveApi, admin: Headers, canary: RemoteServer, remote: RemoteServer, names: Names, good: int
) -> None:
    url = f"http://rebind.example:{canary.port}/mcp"
    names.add("rebind.example", *[["127.0.0.2"]] * good, ["127.0.0.1"])

    status, answer = await add(api, {"url": url}, headers=admin)

    assert status in (201, 502), answer
    assert canary.requests == []
    assert remote.requests
    assert len(names.lookups) <= len(remote.requests) + 1  # one is refused
    assert [request for request in remote.requests if f"rebind.example:{canary.port}" not in request] == []


@pytest.mark.parametrize("then", [["127.0.0.1"], ["127.0.0.2", "127.0.0.1"], ["::ffff:127.0.0.1"]])
async def test_name_that_leads_inside_later_is_refused_by_tests_calls_and_reloads(
    api: LiveApi, admin: Headers, canary: RemoteServer, remote: RemoteServer, names: Names, then: list[str]
) -> None:
    names.add("rebind.example", ["127.0.0.2"])
    await added(api, {"url": f"http://rebind.example:{canary.port}/mcp", **READ}, admin)
    names.add("rebind.example", then)

    tested = await api.post("/v1/servers/shop/test", 502)
    called = await call(api, "shop.find", headers=admin)
    await api.post("/v1/registry/plan?relist=true", json={"mcpServers": {}})

    assert called["status"] != "success"
    assert "127.0.0.1" not in f"{tested}{called}"
    assert canary.requests == []


async def test_allowed_name_may_lead_inside_and_no_name_that_only_looks_like_it(
    api: LiveApi, admin: Headers, canary: RemoteServer, names: Names
) -> None:
    lookalikes = ("evilshop.internal", "shop.internal.example", "www.shop.internal", "shop-internal")
    for name in ("shop.internal", *lookalikes):
        names.add(name, ["127.0.0.1"])

    refused = [await add(api, {"url": f"http://{name}:{canary.port}/mcp"}, headers=admin) for name in lookalikes]
    untouched = list(canary.requests)
    status, answer = await add(api, {"url": f"http://SHOP.internal:{canary.port}/mcp"}, headers=admin)

    assert [each[0] for each in refused if each[0] not in (403, 502)] == []
    assert untouched == []
    assert (status, answer["source"]) == (201, "api"), answer


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("kind", ["http", "sse", "execution_service"])
@pytest.mark.parametrize("with_key", [True, False])
async def test_redirect_to_the_inside_is_not_followed(
    api: LiveApi, admin: Headers, inside: Inside, status: int, kind: str, with_key: bool
) -> None:
    canary, remote = inside
    for path in ("/moved", "/moved/tools"):
        remote.redirect(path, status, f"{canary.origin}/mcp")
    config = {"type": kind, "url": f"{remote.origin}/moved", "headers": {"Authorization": "Bearer of-the-shop"}}

    answer = await (add(api, config, headers=admin) if with_key else add(api, config))

    assert answer[0] == 502
    assert remote.requests
    assert canary.requests == []


@pytest.mark.parametrize("status", [307, 308])
async def test_call_that_is_redirected_to_the_inside_fails(
    api: LiveApi, admin: Headers, inside: Inside, status: int
) -> None:
    canary, remote = inside
    await added(api, {"url": remote.url, **READ}, admin)
    remote.redirect("/mcp", status, canary.url)

    answer = await call(api, "shop.find", headers=admin)
    await api.post("/v1/servers/shop/test", 502)

    assert answer["status"] != "success"
    assert canary.requests == []


async def test_server_cannot_send_the_client_elsewhere_by_what_it_says(
    api: LiveApi, admin: Headers, canary: RemoteServer, remote: RemoteServer
) -> None:
    inside = f"{canary.origin}/secret"
    stream = f"event: endpoint\ndata: {inside}\n\n".encode()
    remote.raw["/sse"] = 200, {"Content-Type": "text/event-stream"}, stream
    remote.raw["/closed"] = (
        401,
        {"WWW-Authenticate": f'Bearer resource_metadata="{inside}"', "Link": f"<{inside}>"},
        b"",
    )
    remote.raw["/next"] = 404, {"Location": inside, "Content-Location": inside, "Refresh": f"0;url={inside}"}, b"{}"

    for kind, path in (("sse", "/sse"), ("http", "/closed"), ("http", "/next"), ("execution_service", "/closed")):
        status, answer = await add(api, {"type": kind, "url": remote.origin + path}, headers=admin)
        assert status == 502, answer

    assert canary.requests == []


@pytest.mark.parametrize("kind", ["http", "sse", "execution_service"])
@pytest.mark.parametrize("who", ["shop@", "shop:word@", ":@", "@"])
async def test_address_with_a_user_is_refused(
    api: LiveApi, admin: Headers, remote: RemoteServer, kind: str, who: str
) -> None:
    url = remote.url.replace("://", f"://{who}")

    status, answer = await add(api, {"type": kind, "url": url}, headers=admin)

    assert status in (403, 422), answer
    assert remote.requests == []


async def test_variable_in_an_address_leads_nowhere_else(
    api: LiveApi, admin: Headers, canary: RemoteServer, monkeypatch: pytest.MonkeyPatch, names: Names
) -> None:
    names.add("inside.example", ["127.0.0.1"])
    for name, value in (("SHOP_HOST", "127.0.0.1"), ("SHOP_NAME", "inside.example"), ("SHOP_URL", canary.url)):
        monkeypatch.setenv(name, value)
    port = canary.port
    urls = [f"http://${{SHOP_HOST}}:{port}/mcp", f"http://${{SHOP_NAME}}:{port}/mcp", "${SHOP_URL}"]
    urls += [f"http://${{NO_SUCH:-127.0.0.1}}:{port}/mcp", "http://${SHOP_HOST:-shop.example}:80/mcp"]

    for url in urls:
        for request in ({"headers": admin}, {}):
            status, answer = await add(api, {"url": url}, **request)
            assert status in (403, 422, 502), answer

    assert canary.requests == []
    assert await nothing_is_stored(api)


async def test_local_admin_s_own_server_is_not_restricted(api: LiveApi, canary: RemoteServer) -> None:
    body = {"name": "shop", "config": {"url": canary.url}}

    answer = await api.post("/v1/servers", 201, json=body)

    assert (answer["source"], sorted(answer["tools"])) == ("host", ["find", "order"])


async def test_key_cannot_move_a_server_to_the_inside_by_a_reload(
    api: LiveApi, admin: Headers, canary: RemoteServer, remote: RemoteServer, names: Names
) -> None:
    names.add("inside.example", ["127.0.0.1"])
    await added(api, {"url": remote.url, **READ}, admin)
    moved = {"mcpServers": {"shop": {"url": f"http://inside.example:{canary.port}/mcp", **READ}}}

    for path in ("plan", "reload"):
        async with api.client.post(f"/v1/registry/{path}", json=moved, headers=admin) as response:
            assert response.status in (200, 403), await response.text()
    async with api.client.post("/execute", json={"tool_name": "shop.find"}, headers=admin) as response:
        assert (await response.json()).get("status") != "success"

    assert (remote.called, canary.requests) == ([], [])


@pytest.mark.parametrize("literal", [True, False])
async def test_key_brings_no_server_of_the_inside_back_by_a_rollback(
    api: LiveApi, admin: Headers, canary: RemoteServer, names: Names, literal: bool
) -> None:
    names.add("inside.example", ["127.0.0.1"])
    url = canary.url if literal else f"http://inside.example:{canary.port}/mcp"
    had = (await api.post("/v1/servers", 201, json={"name": "shop", "config": {"url": url, **READ}}))["epoch"]
    await api.delete("/v1/servers/shop")
    canary.requests.clear()

    async with api.client.post("/v1/registry/rollback", json={"number": had}, headers=admin) as response:
        assert response.status == (403 if literal else 200), await response.text()
    sources = {server["name"]: server["source"] for server in (await api.get("/v1/servers"))["servers"]}
    async with api.client.post("/execute", json={"tool_name": "shop.find"}, headers=admin) as response:
        assert (await response.json()).get("status") != "success"

    assert sources == ({} if literal else {"shop": "api"})
    assert canary.requests == []


async def test_rollback_with_a_key_leaves_servers_of_the_machine_s_admin_as_they_are(
    api: LiveApi, admin: Headers, canary: RemoteServer, remote: RemoteServer
) -> None:
    before = (await api.get("/ready"))["epoch"]
    had = (await api.post("/v1/servers", 201, json={"name": "shop", "config": {"url": remote.url, **READ}}))["epoch"]
    await api.post("/v1/servers", 201, json={"name": "more", "config": {"url": remote.url}}, headers=admin)

    removing = await api.post("/v1/registry/rollback", 403, json={"number": before}, headers=admin)
    await api.post("/v1/registry/rollback", json={"number": had}, headers=admin)
    kept = {server["name"]: server["source"] for server in (await api.get("/v1/servers"))["servers"]}
    answer = await call(api, "shop.find", headers=admin)
    await api.delete("/v1/servers/shop")
    await api.post("/v1/servers", 201, json={"name": "shop", "config": {"url": canary.url}})
    changing = await api.post("/v1/registry/rollback", 403, json={"number": had}, headers=admin)

    assert "'shop' was added on the machine" in removing["detail"]
    assert "'shop' was added on the machine" in changing["detail"]
    assert (kept, answer["status"]) == ({"shop": "host"}, "success")
    assert (await api.get("/v1/servers/shop"))["config"]["url"] == canary.url
