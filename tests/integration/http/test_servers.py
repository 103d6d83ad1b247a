"""Servers over HTTP: add, test, remove, by an admin of the machine and by one with a key."""

from collections.abc import AsyncGenerator, Generator
from typing import Any

import pytest
import pytest_asyncio

from starling.core.principal import Scope
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
