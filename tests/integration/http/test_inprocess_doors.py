"""Python functions in the platform's process are called over HTTP under the same rules as all tools."""

import importlib
import sys
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
import pytest_asyncio

from starling.core.principal import Grant, Scope
from tests.integration.http.conftest import LiveApi, running_api

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODULE = "house_with_doors"
SOURCE = """
import starling

done = []

@starling.tool
def note(text: str) -> dict[str, str]:
    done.append(text)
    return {"noted": text}

@starling.tool
def fail() -> str:
    raise ValueError("no ink")
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(module_database_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[LiveApi]:
    folder = tmp_path_factory.mktemp("house")
    (folder / f"{MODULE}.py").write_text(SOURCE)
    distribution = folder / f"{MODULE}-1.0.dist-info"
    distribution.mkdir()
    (distribution / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {MODULE}\nVersion: 1.0\n")
    (distribution / "entry_points.txt").write_text(f"[starling.servers]\n{MODULE} = {MODULE}\n")
    server = {"type": "inprocess", "entry_point": MODULE}
    servers = {
        "house": server,
        "gated": {**server, "x-starling": {"approval": "always"}},
        "shops": {**server, "x-starling": {"tenants": ["shop"]}},
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        importlib.invalidate_caches()
        async with running_api(module_database_url, folder, servers) as api:
            yield api


def done() -> Sequence[str]:
    return sys.modules[MODULE].done


async def call(api: LiveApi, tool: str, status: int = 200, /, **request: Any) -> Any:
    arguments = {} if tool.endswith("fail") else {"text": request.pop("text", tool)}
    return await api.post("/execute", status, json={"tool_name": tool, "arguments": arguments}, **request)


async def test_function_is_called_as_a_run_and_its_exception_is_an_error(api: LiveApi) -> None:
    said, failed = await call(api, "house.note"), await call(api, "house.fail")

    assert (said["status"], said["output"], bool(said["run_id"])) == ("success", {"noted": "house.note"}, True)
    assert (failed["status"], "no ink" in failed["output"]) == ("error", True)
    assert done().count("house.note") == 1


async def test_function_waits_for_its_approval(api: LiveApi) -> None:
    said = await call(api, "gated.note", headers={"Idempotency-Key": "gated"})

    assert (said["status"], "gated.note" in done()) == ("waiting", False)
    [asked] = (await api.get("/v1/approvals", params={"run_id": said["run_id"]}))["interrupts"]
    yes = {"status": "resolved", "payload": {"approved": True}}
    await api.post(f"/v1/approvals/{asked['id']}", 202, json=yes)
    found = await call(api, "gated.note", headers={"Idempotency-Key": "gated"})
    assert (found["status"], done().count("gated.note")) == ("success", 1)


async def test_functions_are_behind_scope_grant_and_tenant(api: LiveApi) -> None:
    narrow = await api.key(Scope.SERVICE, grant=Grant(tools=frozenset({"house.fail"})))
    shop, mill = [await api.key(Scope.SERVICE, tenant=tenant) for tenant in ("shop", "mill")]

    await call(api, "house.note", 403, text="scope", headers=await api.key(Scope.TEAMS))
    await call(api, "house.note", 404, text="grant", headers=narrow)
    await call(api, "shops.note", 404, text="tenant", headers=mill)
    said = await call(api, "shops.note", text="own", headers=shop)

    assert said["status"] == "success"
    assert [text for text in done() if text in ("scope", "grant", "tenant", "own")] == ["own"]


@pytest.mark.parametrize(("kind", "name"), [("server", "house"), ("agent", "mcp_agent_house"), ("tenant", "default")])
async def test_kill_switch_stops_functions(api: LiveApi, kind: str, name: str) -> None:
    await api.put("/v1/switches", json={"kind": kind, "name": name, "reason": "It is being tested."})
    try:
        said = await call(api, "house.note", text="switched off")
        listed = {tool["name"] for tool in (await api.get("/tools"))["tools"]}
    finally:
        await api.delete("/v1/switches", 204, params={"kind": kind, "name": name})

    assert (said["status"], "It is being tested." in said["output"]) == ("error", True)
    assert "house.note" not in listed
    assert "switched off" not in done()
