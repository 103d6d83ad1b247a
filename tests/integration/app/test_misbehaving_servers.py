"""Start-up with twenty servers of which six are broken: it does not wait, and reports why they fail."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from mcp_gateway.registration import catalog
from mcp_gateway.registration.pins import Pin
from mcp_gateway.registration.repository import ListedServer
from starling.app.doctor import mcp_servers as doctor_servers
from tests.support.command_line import new_workspace
from tests.support.gateway_harness import SERVERS, named, wait_for
from tests.support.http_app import served_api
from tests.support.model_script import Answer
from tests.support.model_server import ModelServer
from tests.support.platform import Platform, ScriptedModel, calls, decision, open_platform, task, verdict

_SCRIPT = str(SERVERS / "misbehaving.py")
GOOD = [f"good{number}" for number in range(14)]
BROKEN = {
    "missing": "was not found",
    "crashing": "exit code 3; its last line on stderr: no such database: prod",
    "silent": "",  # what is said of it depends on when it is asked
    "garbage": "",
    "only-bad-schemas": "none of its tools can be used: 'bad': its inputSchema doesn't describe an object",
    "endless": "its list of tools doesn't end",
}


def server(how: str, *arguments: str) -> dict[str, Any]:
    return {"command": sys.executable, "args": [_SCRIPT, how, *arguments], "x-starling": {"effect": "read"}}


def twenty() -> dict[str, Any]:
    broken = {name: server(name) for name in BROKEN} | {"missing": {"command": "no-such-program"}}
    return {name: server("well") for name in GOOD} | broken


@asynccontextmanager
async def platform(database_url: str, folder: Path, script: ScriptedModel, **limits: Any) -> AsyncGenerator[Platform]:
    async with (
        ModelServer(script) as model,
        open_platform(database_url, model, twenty(), folder, **limits) as opened,
    ):
        yield opened


async def test_server_that_answers_late_creates_a_further_epoch(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "GRACE_SECONDS", 0.2)
    permission = tmp_path / "go"
    servers = {"good": server("well"), "late": server("late", str(permission))}
    async with (
        ModelServer(ScriptedModel()) as model,
        open_platform(database_url, model, servers, tmp_path) as opened,
    ):
        gateway, epochs = opened.worker_runtime.gateway, opened.services.storage.epochs
        before = opened.worker_runtime.epoch
        late = named(opened.worker_runtime.listings, "late")
        permission.touch()
        await wait_for(lambda: (listing := gateway.listing("late")) is not None and listing.state == "ready")

        assert (late.state, late.tools) == ("degraded", ())
        assert "has not listed its tools yet" in late.error
        assert await epochs.active_number() == before + 1
        assert (await epochs.get(before + 1)).manifest.servers["late"].tools.keys() == {"act"}


async def test_ready_route_server_list_prompt_and_answer_name_degraded_servers(
    database_url: str, tmp_path: Path
) -> None:
    script = ScriptedModel()
    script.supervisor(decision(task("t1", "mcp_agent_crashing", "look it up"), task("t2", "mcp_agent_good1")))
    script.agent("t2", calls(("act", {})))
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("Half of it is done [1]."))

    async with platform(database_url, tmp_path, script, shortlist=30) as opened:
        stream = await opened.ask("Do both.")
        result = await opened.result(stream.key)
        planner = opened.requests_containing("You supervise agents")[0]["messages"][1]["content"]
        ready = await readiness(opened)
        listed = await server_list(database_url)

    for known in (ready["servers"], listed):
        degraded = {row["name"]: row for row in known if row["state"] == "degraded"}
        assert degraded.keys() == BROKEN.keys()
        assert [name for name, said in BROKEN.items() if said not in degraded[name]["error"]] == []
        assert all(row["error"] and row["remedy"] for row in degraded.values())
    assert ready["status"] == "ready"
    assert all(f'name="mcp_agent_{name}" kind="specialist" state="degraded"' in planner for name in BROKEN)
    assert [(part.part, "no such database: prod" in part.reason) for part in result.degraded] == [("look it up", True)]
    assert stream.status == "succeeded"


async def test_doctor_names_quarantined_tools(database_url: str, tmp_path: Path) -> None:
    servers = {"good": server("well")}
    async with (
        ModelServer(ScriptedModel()) as model,
        open_platform(database_url, model, servers, tmp_path) as opened,
    ):
        repository = opened.services.storage.servers
        [row] = await repository.servers()
        pin = Pin(None, "offered", "quarantined", "It is new.")
        await repository.change((), [ListedServer(row, {}, {"steal": pin})])

        settings = opened.settings.model_copy(update={"database_url": SecretStr(database_url)})
        found = await doctor_servers.check(settings)

    (finding,) = (one for one in found if "steal: It is new." in one.message)
    assert (finding.state, f"server approve {row.name}" in finding.remedy) == ("warning", True)


async def readiness(opened: Platform) -> dict[str, Any]:
    async with (
        served_api(opened.settings, opened.services) as served,
        served.client.get("/ready") as response,
    ):
        assert response.status == 200
        return await response.json()


async def server_list(database_url: str) -> list[dict[str, Any]]:
    with new_workspace(DATABASE_URL=database_url) as workspace:
        return await asyncio.to_thread(workspace.json, "server", "list")
