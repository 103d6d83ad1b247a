"""Settings of single tools over HTTP: they win over the file, stay when it is reloaded, and are part of the epoch."""

from typing import Any

import pytest

from starling.infra.postgres.audit import latest
from tests.integration.http.conftest import SERVERS, LiveApi

pytestmark = pytest.mark.asyncio(loop_scope="module")

PATH = "/v1/servers/system_health/tools/disk"


async def send(api: LiveApi, method: str, path: str, body: object = None, status: int = 200) -> Any:
    return await api.send(method, path, status, json=body)


async def test_settings_of_a_tool_win_stay_after_a_reload_and_go_back_with_a_rollback(api: LiveApi) -> None:
    put = await send(api, "PUT", PATH, {"timeout": 7, "description": "Space on a disk.", "cache_ttl": 30})

    assert put["effective"]["timeout"] == {"value": 7.0, "source": "tool_settings"}
    assert put["effective"]["effect"] == {"value": "read", "source": "configuration"}
    entry, change = await latest(api.services.storage.engine, "default", limit=2)
    assert (entry.action, entry.target) == ("server.tool", "system_health.disk")
    assert entry.detail["settings"] == {"timeout": 7, "description": "Space on a disk.", "cache_ttl": 30}
    assert change.action == "server.configure"
    (agent,) = [
        card
        for card in (await api.services.storage.rosters.roster(put["epoch"], "default")).cards.values()
        if card.server == "system_health"
    ]
    assert {tool.name: tool.description for tool in agent.tools}["disk"] == "Space on a disk."

    file = {"mcpServers": {**SERVERS, "system_health": {**SERVERS["system_health"], "disabled": False}}}
    changed = {**SERVERS["system_health"], "x-starling": {"effect": "read", "description": "Health."}}
    planned = await send(
        api, "POST", "/v1/registry/plan", {"mcpServers": {**file["mcpServers"], "system_health": changed}}
    )
    reloaded = await send(
        api, "POST", "/v1/registry/reload", {"mcpServers": {**file["mcpServers"], "system_health": changed}}
    )
    kept = {"system_health.disk": ["cache_ttl", "description", "timeout"]}
    assert (planned["tool_settings"], reloaded["tool_settings"]) == (kept, kept)
    assert (await send(api, "GET", PATH))["settings"] == put["settings"]

    taken_back = await send(api, "PUT", PATH, {})
    assert (taken_back["settings"], taken_back["effective"]["timeout"]["source"]) == ({}, "default")
    await send(api, "POST", "/v1/registry/rollback", {"number": put["epoch"]})
    assert (await send(api, "GET", PATH))["settings"] == put["settings"]
    await send(api, "POST", "/v1/registry/reload", {"mcpServers": SERVERS})
    await send(api, "PUT", PATH, {})


async def test_settings_that_are_the_same_make_no_epoch(api: LiveApi) -> None:
    first = await send(api, "PUT", PATH, {"timeout": 7})

    assert (await send(api, "PUT", PATH, {"timeout": 7}))["epoch"] == first["epoch"]


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    [
        ("/v1/servers/nobody/tools/disk", {"timeout": 7}, 404, "nobody"),
        ("/v1/servers/system_health/tools/tape", {"timeout": 7}, 404, "system_health.tape"),
        (PATH, {"retries": 7}, 422, "there is no such field"),
        (PATH, {"dedup_ttl": 7}, 422, "dedup_ttl is for tools that may change something"),
    ],
)
async def test_settings_that_cannot_be_stored_are_refused(
    api: LiveApi, path: str, body: dict[str, Any], status: int, said: str
) -> None:
    assert said in (await send(api, "PUT", path, body, status))["detail"]
