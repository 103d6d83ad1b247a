"""The registry over HTTP: plan, reload, rollback."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from sqlalchemy import select

from mcp_gateway.configuration.servers import McpConfig, server_of
from mcp_gateway.configuration.stdio_over_http import StdioRules
from starling.app.access.keys import KeySpec
from starling.core.principal import HOST_ADMIN, Scope
from starling.infra.postgres.audit import Actor, latest
from starling.infra.postgres.tables.registry import servers
from tests.integration.http.conftest import SERVERS, LiveApi

pytestmark = pytest.mark.asyncio(loop_scope="module")

WITHOUT_BROKEN: dict[str, Any] = {"mcpServers": {"system_health": SERVERS["system_health"]}}


async def send(api: LiveApi, path: str, body: dict[str, Any], status: int = 200) -> Any:
    return await api.post(f"/v1/registry/{path}", json=body, status=status)


async def epochs(api: LiveApi) -> list[dict[str, Any]]:
    return (await api.get("/v1/registry"))["epochs"]


async def epoch_of(api: LiveApi) -> int:
    return (await api.get("/ready"))["epoch"]


async def names(api: LiveApi) -> set[str]:
    async with api.services.storage.engine.connect() as connection:
        return set(await connection.scalars(select(servers.c.name)))


async def test_reload_makes_the_planned_changes_and_rollback_reverts_them(api: LiveApi) -> None:
    await send(api, "reload", {"mcpServers": SERVERS})  # other tests may have changed them
    first, before = await epoch_of(api), await names(api)

    planned = await send(api, "plan", WITHOUT_BROKEN)
    assert (planned["changed"], planned["epoch"], await names(api)) == (True, first, before)
    done = await send(api, "reload", WITHOUT_BROKEN)

    assert done["changes"] == planned["changes"]
    assert done["changes"]["servers"] == {"added": [], "changed": [], "removed": ["broken"]}
    assert (await epoch_of(api), await names(api)) == (first + 1, before - {"broken"})
    assert not (await send(api, "plan", WITHOUT_BROKEN))["changed"]

    back = await send(api, "rollback", {})
    assert back["changes"]["servers"]["added"] == ["broken"]
    assert await names(api) == before
    assert "reload" in back["warnings"]["broken"]

    newest, *older = await epochs(api)
    assert (newest["number"], newest["active"], newest["actor"], newest["origin"]) == (
        first + 2,
        True,
        "local",
        "127.0.0.1",
    )
    assert older[-1]["origin"] == "start"
    actions = [entry.action for entry in await latest(api.services.storage.engine, "default", limit=2)]
    assert actions == ["registry.rollback", "registry.reload"]


async def test_run_uses_a_server_right_after_the_reload_that_adds_it(api: LiveApi) -> None:
    named = {"mcpServers": {"disks": SERVERS["system_health"] | {"x-starling": {"effect": "read", "description": "?"}}}}

    done = await send(api, "reload", named)
    events = await api.ask("How full is this disk?")

    assert events[0].data["epoch"] == done["epoch"]
    assert {event.data["agent"] for event in events if event.type == "task_start"} == {"mcp_agent_disks"}
    assert events[-1].data["status"] == "succeeded"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"mcpServers": {"a": {"command": ""}}}, "mcpServers.a.command"),
        ({"mcpServers": {"a b": {"command": "x"}}}, "1 to 48 letters"),
        ({"mcpServers": []}, "mcpServers"),
        ({}, "mcpServers"),
    ],
)
@pytest.mark.parametrize("path", ["plan", "reload"])
async def test_invalid_document_is_refused_and_changes_nothing(
    api: LiveApi, path: str, body: dict[str, Any], said: str
) -> None:
    before = await epoch_of(api), await names(api)

    problem = await send(api, path, body, status=422)

    assert said in problem["detail"]
    assert (await epoch_of(api), await names(api)) == before


@pytest.mark.parametrize("path", ["plan", "reload"])
async def test_document_with_a_repeated_name_is_refused_in_every_encoding(api: LiveApi, path: str) -> None:
    body = '{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}'
    headers = {"content-type": "application/json"}

    for encoding in ("utf-8", "utf-8-sig"):
        assert (
            "'a' is used twice"
            in (await api.post(f"/v1/registry/{path}", data=body.encode(encoding), headers=headers, status=422))[
                "detail"
            ]
        )


async def test_misspelt_parameter_is_refused(api: LiveApi) -> None:
    for path in ("plan", "reload"):
        assert "relst" in (await send(api, f"{path}?relst=true", WITHOUT_BROKEN, status=422))["detail"]
    await api.get("/v1/registry", params={"limt": 1}, status=422)


async def test_epoch_number_of_another_json_type_is_refused(api: LiveApi) -> None:
    before = await epoch_of(api)

    for number in (True, "1", 1.0, 0):
        await send(api, "rollback", {"number": number}, status=422)

    assert await epoch_of(api) == before


async def test_unknown_epoch_is_not_found(api: LiveApi) -> None:
    assert "epoch '77'" in (await send(api, "rollback", {"number": 77}, status=404))["detail"]


async def test_limit_sets_the_length_of_the_epoch_list(api: LiveApi) -> None:
    assert len((await api.get("/v1/registry", params={"limit": 1}))["epochs"]) == 1


@asynccontextmanager
async def remote_admin(api: LiveApi) -> AsyncGenerator[LiveApi]:
    """The API for the key of an admin, who may be on another machine."""
    _, key = await api.services.storage.keys.create(
        HOST_ADMIN, KeySpec("test", "default", frozenset({Scope.ADMIN})), Actor.local("test")
    )
    async with aiohttp.ClientSession(api.url, headers={"Authorization": f"Bearer {key}"}) as client:
        yield replace(api, client=client)


async def test_stdio_server_over_http_is_neither_planned_nor_loaded_with_a_key(api: LiveApi, tmp_path: Path) -> None:
    await send(api, "reload", WITHOUT_BROKEN)
    canary = tmp_path / "touched"
    hostile = {"mcpServers": SERVERS | {"touch": {"command": "/bin/touch", "args": [str(canary)]}}}
    changed = {"mcpServers": {"system_health": SERVERS["system_health"] | {"env": {"A": "b"}}}}

    async with remote_admin(api) as remote:
        refused = [
            await send(remote, path, body, status=403) for path in ("plan", "reload") for body in (hostile, changed)
        ]
        unchanged = await send(remote, "plan?relist=true", WITHOUT_BROKEN)

    assert {answer["code"] for answer in refused} == {"forbidden"}
    assert "stdio_over_http" in refused[0]["remedy"]
    assert not unchanged["changed"]
    assert not canary.exists()


async def test_rollback_with_a_key_brings_no_stdio_server_back(api: LiveApi) -> None:
    await send(api, "reload", WITHOUT_BROKEN)
    before = await epoch_of(api)
    await send(api, "reload", {"mcpServers": {}})

    async with remote_admin(api) as remote:
        await send(remote, "rollback", {"number": before}, status=403)

    assert await names(api) == set()
    await send(api, "rollback", {"number": before})
    assert await names(api) == {"system_health"}


async def test_plan_over_http_starts_no_allowed_command_that_is_not_in_use(api: LiveApi, tmp_path: Path) -> None:
    canary = tmp_path / "touched"
    registry = replace(api.services.registry, stdio_rules=StdioRules(("/bin/touch",)))
    config: McpConfig = {"touch": server_of({"command": "/bin/touch", "args": [str(canary)]})}

    over_http = await registry.plan(config, source="api")
    touched_over_http = canary.exists()
    await registry.plan(config)

    assert "isn't started for a plan over HTTP" in over_http.warnings["touch"]
    assert (touched_over_http, canary.exists()) == (False, True)


async def test_servers_say_what_keeps_them_from_the_files_of_the_platform(api: LiveApi) -> None:
    listed = (await api.get("/v1/servers"))["servers"]
    shown = await api.get(f"/v1/servers/{listed[0]['name']}")

    assert {server["isolation"]["files"] for server in listed} == {"mount_namespace"}
    assert shown["isolation"] == listed[0]["isolation"]
