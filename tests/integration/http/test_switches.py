"""Kill switches over HTTP."""

import pytest

from tests.integration.http.conftest import LiveApi

pytestmark = pytest.mark.asyncio(loop_scope="module")

TIME = {"kind": "server", "name": "time", "reason": "It lies."}


async def names(api: LiveApi) -> list[tuple[str, str, str, str]]:
    async with api.client.get("/v1/switches") as response:
        found = (await response.json())["switches"]
    return [(item["kind"], item["name"], item["tenant"], item["reason"]) for item in found]


async def test_something_is_switched_off_and_on_again(api: LiveApi) -> None:
    async with api.client.put("/v1/switches", json=TIME) as response:
        made = response.status, (await response.json())["actor"]
    async with api.client.put("/v1/switches", json=TIME | {"reason": "It still does."}):
        off = await names(api)
    async with api.client.delete("/v1/switches", params={"kind": "server", "name": "time"}) as response:
        removed = response.status

    assert (made, off, removed) == ((200, "local"), [("server", "time", "*", "It still does.")], 204)
    assert await names(api) == []


async def test_a_tenants_own_switch_is_that_tenants(api: LiveApi) -> None:
    async with api.client.put("/v1/switches", json={"kind": "tenant", "name": "mill", "reason": "Closed."}):
        assert await names(api) == [("tenant", "mill", "mill", "Closed.")]
    async with api.client.delete("/v1/switches", params={"kind": "tenant", "name": "mill"}) as response:
        assert response.status == 204


async def test_what_is_not_off_cannot_be_switched_on(api: LiveApi) -> None:
    async with api.client.delete("/v1/switches", params={"kind": "agent", "name": "nobody"}) as response:
        assert (response.status, (await response.json())["code"]) == (404, "not_found")
    async with api.client.put("/v1/switches", json={**TIME, "kind": "tool"}) as response:
        assert response.status == 422
