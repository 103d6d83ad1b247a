"""Servers over HTTP: add, test, remove, by an admin of the machine and by one with a key."""

from collections.abc import AsyncGenerator, Generator, Mapping
from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio

from starling.core.principal import Scope
from starling.infra.postgres.audit import latest
from tests.integration.http.conftest import SERVERS, LiveApi, running_api
from tests.support.gateway_harness import free_port, running_http

pytestmark = pytest.mark.asyncio(loop_scope="module")

STDIO = {"command": "/bin/touch", "args": ["never"]}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(module_database_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[LiveApi]:
    """A platform on which servers that come over HTTP may be on 127.0.0.1."""
    file, folder = {"system_health": SERVERS["system_health"]}, tmp_path_factory.mktemp("api")
    async with running_api(module_database_url, folder, file, allowed_addresses=("127.0.0.1",)) as api:
        yield api


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    with running_http(tmp_path_factory.mktemp("server") / "record", free_port()) as config:
        yield str(config.document["url"])


async def add(
    api: LiveApi, name: str, config: Any, status: int = 201, *, imported: bool = False, **request: Any
) -> dict[str, Any]:
    body = {"name": name, "config": config} | ({"imported": True} if imported else {})
    return await api.post("/v1/servers", json=body, status=status, **request)


async def remove(api: LiveApi, name: str, status: int = 200, **request: Any) -> dict[str, Any]:
    return await api.delete(f"/v1/servers/{name}", status=status, **request)


async def names(api: LiveApi) -> set[str]:
    return {server["name"] for server in (await api.get("/v1/servers"))["servers"]}


async def audited(api: LiveApi) -> tuple[str, str]:
    """Return the last change and who made it."""
    [entry] = await latest(api.services.storage.engine, "default", limit=1)
    return entry.change.action, entry.actor.name


def id_of(header: Mapping[str, str]) -> str:
    return str(UUID(header["Authorization"].split("-")[2]))


async def test_server_of_the_machines_admin_is_used_at_once_tested_and_removed(api: LiveApi, url: str) -> None:
    added = await add(api, "ours", {"url": url})
    change = await audited(api)
    probe = await api.post("/v1/servers/ours/test")
    shown = await api.get("/v1/servers/ours")
    removed = await remove(api, "ours")

    assert (added["source"], shown["source"], added["quarantined"]) == ("host", "host", {})
    assert set(added["tools"]) == set(probe["tools"])
    assert (probe["new"], probe["gone"], probe["changed"]) == ([], [], [])
    assert change == ("server.add", "local")
    assert removed == {"name": "ours", "epoch": added["epoch"] + 1}
    assert await audited(api) == ("server.remove", "local")
    assert "ours" not in await names(api)


async def test_server_of_a_key_waits_for_approval_and_can_be_removed_by_it(api: LiveApi, url: str) -> None:
    key = await api.key(Scope.ADMIN)

    added = await add(api, "theirs", {"url": url}, headers=key)
    who = await audited(api)
    shown = await api.get("/v1/servers/theirs")
    offered = {pin["tool"]: pin["offered_hash"] for pin in shown["pins"]}
    probe = await api.post("/v1/servers/theirs/test", headers=key)
    await api.post("/v1/servers/theirs/approve", json={"tools": offered}, headers=key)
    approved = await api.get("/v1/servers/theirs")
    await remove(api, "theirs", headers=key)

    assert (added["source"], added["tools"]) == ("api", [])
    assert set(added["quarantined"]) == set(offered) == set(probe["tools"])
    assert who == ("server.add", id_of(key))
    assert {tool["name"] for tool in approved["tools"]} == set(offered)
    assert "theirs" not in await names(api)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"url": "http://10.0.0.1/mcp"}, "10.0.0.1 is not a public one"),
        ({"url": "http://169.254.169.254/latest"}, "169.254.169.254 is not a public one"),
        ({"url": "http://[::ffff:10.0.0.1]/mcp"}, "is not a public one"),
        ({"url": "file:///etc/passwd"}, "http:// or https://"),
        ({"url": "https://me:pass@shop.example/"}, "a user name or a password"),
        ({"url": "https://shop.example/${DATABASE_URL}"}, "a secret of the platform itself"),
        (STDIO, "would start a command"),
    ],
)
async def test_server_that_a_key_may_not_add_is_refused_and_nothing_is_stored(
    api: LiveApi, config: dict[str, Any], reason: str
) -> None:
    before = await names(api)

    problem = await add(api, "evil", config, status=403, headers=await api.key(Scope.ADMIN))

    assert reason in problem["detail"]
    assert await names(api) == before


async def test_command_is_added_by_an_admin_of_the_machine(api: LiveApi) -> None:
    added = await add(api, "more", SERVERS["system_health"])

    assert added["source"] == "host"
    assert added["tools"]
    await remove(api, "more")


async def test_imported_address_of_the_machines_admin_is_checked_as_one_of_a_key(api: LiveApi, url: str) -> None:
    refused = await add(api, "evil", {"url": "http://169.254.169.254/latest"}, status=403, imported=True)
    secret = {"url": "https://shop.example/", "headers": {"X": "${DATABASE_URL}"}}
    asks = await add(api, "evil", secret, status=403, imported=True)
    added = await add(api, "bought", {"url": url}, imported=True)
    await remove(api, "bought")

    assert "169.254.169.254 is not a public one" in refused["detail"]
    assert "a secret of the platform itself" in asks["detail"]
    assert (added["source"], added["tools"]) == ("api", [])


async def test_imported_command_is_limited_for_keys_only(api: LiveApi) -> None:
    refused = await add(api, "evil", STDIO, status=403, imported=True, headers=await api.key(Scope.ADMIN))
    added = await add(api, "more", SERVERS["system_health"], imported=True)
    await remove(api, "more")

    assert "would start a command" in refused["detail"]
    assert (added["source"], added["quarantined"]) == ("host", {})


@pytest.mark.parametrize(
    ("name", "config", "said"),
    [
        ("a b", {"url": "https://shop.example/mcp"}, "1 to 48 letters"),
        ("a", {"url": ""}, "url"),
        ("a", {"url": "https://shop.example/mcp", "x-starling": {"efect": "read"}}, "efect"),
        ("a", {"url": "https://shop.example/mcp", "disabled": True}, "disabled"),
        ("a", [], "must be an object"),
        ("system_health", {"url": "https://shop.example/mcp"}, "There is a server 'system_health' already"),
        ("system_hea1th", {"url": "https://shop.example/mcp"}, "looks like it"),
    ],
)
async def test_configuration_that_is_wrong_is_refused(api: LiveApi, name: str, config: Any, said: str) -> None:
    before = await names(api)

    assert said in (await add(api, name, config, status=422))["detail"]
    assert await names(api) == before


async def test_server_that_can_not_be_listed_is_a_bad_gateway_and_not_stored(api: LiveApi) -> None:
    config = {"url": f"http://127.0.0.1:{free_port()}/mcp"}

    problem = await add(api, "gone", config, status=502)

    assert problem["code"] == "server_unavailable"
    assert "gone" not in await names(api)


async def test_key_removes_no_server_of_the_machines_admin_but_one_of_a_file(api: LiveApi, url: str) -> None:
    key = await api.key(Scope.ADMIN)
    await add(api, "ours", {"url": url})

    refused = await remove(api, "ours", status=403, headers=key)
    await remove(api, "ours")
    of_the_file = await remove(api, "system_health", headers=key)
    await api.post("/v1/registry/reload", json={"mcpServers": {"system_health": SERVERS["system_health"]}})

    assert "added on the machine" in refused["detail"]
    assert of_the_file["name"] == "system_health"


async def test_unknown_server_is_neither_tested_nor_removed(api: LiveApi) -> None:
    await api.post("/v1/servers/nothing/test", status=404)
    await remove(api, "nothing", status=404)


async def test_document_with_a_private_address_is_neither_planned_nor_loaded_with_a_key(api: LiveApi) -> None:
    key, body = await api.key(Scope.ADMIN), {"mcpServers": {"evil": {"url": "http://192.168.0.1/mcp"}}}

    answers = [
        await api.post(f"/v1/registry/{path}", json=body, status=403, headers=key) for path in ("plan", "reload")
    ]

    assert all("192.168.0.1 is not a public one" in answer["detail"] for answer in answers)
