"""Teams over HTTP: checked, imported, activated, rolled back, archived."""

import asyncio
import json
import threading
from typing import Any

import pytest

from architect.spec_format import team_of
from starling.app.http.routes import teams
from starling.core.principal import Grant, Scope
from starling.core.teams.spec import TeamSpec
from starling.infra.postgres.audit import latest
from tests.integration.http.conftest import LiveApi

pytestmark = pytest.mark.asyncio(loop_scope="module")

WATCHER: dict[str, Any] = {
    "name": "watcher",
    "role": "Watcher of disks",
    "goal": "Measure how full the disks are.",
    "server": "system_health",
    "tools": ["system_health.disk"],
}
WRITER: dict[str, Any] = {"name": "writer", "role": "Writer", "goal": "Write what was measured."}


def spec(name: str, *members: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"name": name, "purpose": "Watches disks.", "members": [*(members or (WATCHER, WRITER))], **fields}


async def send(
    api: LiveApi,
    method: str,
    path: str,
    body: Any = None,
    *,
    status: int | None = 200,
    headers: dict[str, str] | None = None,
) -> Any:
    async with api.client.request(method, f"/v1/teams{path}", json=body, headers=headers) as response:
        assert status in (response.status, None), await response.text()
        return await response.json()


async def imported(api: LiveApi, made: dict[str, Any], status: int = 201) -> dict[str, Any]:
    return await send(api, "POST", f"/{made['name']}/versions", {"spec": made}, status=status)


async def test_team_is_imported_activated_rolled_back_and_archived(api: LiveApi) -> None:
    first = await imported(api, spec("disks"))
    await send(api, "POST", "/disks/activate")
    second = await imported(api, spec("disks", purpose="Watches all disks."))

    done = await send(api, "POST", "/disks/activate", {"version": second["version"]})
    shown = await send(api, "GET", "/disks")
    back = await send(api, "POST", "/disks/rollback")
    versions = (await send(api, "GET", "/disks/versions"))["versions"]
    gone = await send(api, "POST", "/disks/archive")

    assert (first["version"], first["state"], first["created"]) == (1, "draft", True)
    assert done["tools"] == ["system_health.disk"]
    assert (shown["state"], shown["version"], shown["versions"], shown["reason"]) == ("active", 2, 2, "")
    assert [(one["name"], one["server"], one["tools"], one["state"]) for one in shown["members"]] == [
        ("watcher", "system_health", ["system_health.disk"], "ready"),
        ("writer", None, [], "ready"),
    ]
    assert (back["version"], back["epoch"]) == (1, done["epoch"] + 1)
    assert [(one["created_by"], "creator" in one) for one in versions] == [("local", False)] * 2
    assert [(one["version"], one["state"], one["activated_by"]) for one in versions] == [
        (1, "active", "local"),
        (2, "superseded", "local"),
    ]
    assert versions[0]["spec"]["purpose"] == "Watches disks."
    assert (gone["epoch"], (await send(api, "GET", "/disks"))["state"]) == (back["epoch"] + 1, "archived")
    await send(api, "POST", "/disks/archive", status=409)


async def test_every_change_of_a_team_is_audited(api: LiveApi) -> None:
    made = await imported(api, spec("audited"))
    for action in ("activate", "archive"):
        await send(api, "POST", f"/audited/{action}")

    entries = [
        item for item in await latest(api.services.storage.engine, "default", limit=9) if item.target == "audited"
    ]

    assert [item.action for item in reversed(entries)] == ["team.import", "team.activate", "team.archive"]
    assert {item.by for item in entries} == {"local"}
    assert entries[-1].detail == {"tenant": "default", "version": 1, "hash": made["hash"]}


async def test_equal_import_is_answered_with_the_version_that_is_stored(api: LiveApi) -> None:
    first = await imported(api, spec("twice"))

    again = await imported(api, spec("twice"), status=200)

    assert again == {**first, "created": False}


async def test_team_is_one_of_the_agents(api: LiveApi) -> None:
    await imported(api, spec("listed"))
    await send(api, "POST", "/listed/activate")

    agent = (await api.get("/v1/agents/listed"))["agent"]
    (entry,) = [one for one in (await send(api, "GET", ""))["teams"] if one["name"] == "listed"]

    assert (agent["kind"], agent["description"], agent["tools"]) == (
        "team",
        "Watches disks.",
        ["system_health.disk"],
    )
    assert (entry["state"], entry["version"], entry["reason"]) == ("active", 1, "")


@pytest.mark.parametrize(
    ("made", "path", "rule"),
    [
        (spec("wrong", purpose=""), "purpose", "format"),
        (spec("wrong", {**WATCHER, "server": "nothing", "tools": []}), "members[0].server", "unknown_server"),
        (spec("wrong", {**WATCHER, "server": "broken", "tools": []}), "members[0].server", "member_without_tools"),
    ],
    ids=lambda value: value if isinstance(value, str) and "[" not in value else "",
)
async def test_spec_with_a_fault_is_refused_with_its_place_reason_and_remedy(
    api: LiveApi, made: dict[str, Any], path: str, rule: str
) -> None:
    refused = await imported(api, made, status=422)
    checked = await send(api, "POST", "/check", {"spec": made})

    found = {(one["path"], one["rule"]): one for one in refused["errors"]}
    assert refused["code"] == "team_invalid"
    assert found[path, rule]["reason"]
    assert found[path, rule]["remedy"]
    assert found[path, rule]["reason"] in refused["remedy"]
    assert checked == {"valid": False, "findings": refused["errors"], "notes": []}


async def test_spec_in_order_is_valid_and_not_stored(api: LiveApi) -> None:
    assert await send(api, "POST", "/check", {"spec": spec("unstored")}) == {"valid": True, "findings": [], "notes": []}

    await send(api, "GET", "/unstored", status=404)


@pytest.mark.parametrize(("path", "status"), [("/check", 200), ("/slow/versions", 201)])
async def test_other_requests_are_answered_while_a_long_spec_is_read(
    api: LiveApi, monkeypatch: pytest.MonkeyPatch, path: str, status: int
) -> None:
    reading, may_end = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def slowly(document: object) -> TeamSpec:
        loop.call_soon_threadsafe(reading.set)
        assert may_end.wait(timeout=60)
        return team_of(document)

    monkeypatch.setattr(teams, "team_of", slowly)
    sending = asyncio.create_task(send(api, "POST", path, {"spec": spec("slow")}, status=status))
    await reading.wait()

    await send(api, "GET", "/none", status=404)

    may_end.set()
    await sending


async def test_spec_of_another_name_than_its_path_is_refused(api: LiveApi) -> None:
    refused = await send(api, "POST", "/other/versions", {"spec": spec("mine")}, status=422)

    assert [(one["path"], one["rule"]) for one in refused["errors"]] == [("name", "other_name")]


async def test_key_imports_with_the_scope_teams_what_it_may_call_activates_with_admin_and_reads_with_either(
    api: LiveApi,
) -> None:
    maker = await api.key(Scope.TEAMS, grant=Grant(servers=frozenset({"broken"})))
    admin = await api.key(Scope.ADMIN)

    refused = await send(api, "POST", "/scoped/versions", {"spec": spec("scoped")}, status=422, headers=maker)
    written = await send(api, "POST", "/scoped/versions", {"spec": spec("scoped", WRITER)}, status=201, headers=maker)
    for action in ("activate", "rollback", "archive"):
        await send(api, "POST", f"/scoped/{action}", status=403, headers=maker)
    done = await send(api, "POST", "/scoped/activate", headers=admin)

    assert {one["rule"] for one in refused["errors"]} == {"caller_grant"}
    assert (done["name"], done["version"]) == ("scoped", written["version"])
    await send(api, "POST", "/check", {"spec": spec("scoped")}, status=403, headers=admin)
    for path in ("", "/scoped", "/scoped/versions", "/scoped/graph"):
        await send(api, "GET", path, headers=admin)
    assert (await send(api, "GET", "/scoped", headers=maker))["state"] == "active"


async def test_team_is_drawn_as_json_and_as_mermaid(api: LiveApi) -> None:
    await imported(api, spec("drawn"))

    async def drawn(query: str, accept: str = "*/*") -> tuple[str, str]:
        async with api.client.get(f"/v1/teams/drawn/graph{query}", headers={"Accept": accept}) as response:
            assert response.status == 200, await response.text()
            return response.content_type, await response.text()

    media, text = await drawn("")
    charts = [await drawn("?format=mermaid&version=1"), await drawn("", "text/vnd.mermaid")]

    assert media == "application/json"
    assert [one["id"] for one in json.loads(text)["nodes"]] == [
        "drawn",
        "drawn/watcher",
        "server:system_health",
        "drawn/writer",
    ]
    assert charts[0] == charts[1]
    assert charts[0][0] == "text/vnd.mermaid"
    assert charts[0][1].startswith("flowchart TD\n")
    assert await drawn("?format=json", "text/vnd.mermaid") == (media, text)


async def test_graph_has_only_tools_that_the_key_is_granted(api: LiveApi) -> None:
    await imported(api, spec("narrow", {**WATCHER, "tools": []}))
    await send(api, "POST", "/narrow/activate")
    reader = await api.key(Scope.TEAMS, grant=Grant(tools=frozenset({"system_health.disk"})))

    whole, part = [await send(api, "GET", "/narrow/graph", headers=headers) for headers in (None, reader)]

    assert len(whole["edges"][1]["tools"]) > 1
    assert part["edges"][1]["tools"] == ["system_health.disk"]


async def test_stored_star_is_drawn_whatever_servers_there_are_now(api: LiveApi) -> None:
    await imported(api, spec("kept"))
    await send(api, "POST", "/kept/activate")
    draft = await imported(api, spec("kept", purpose="Later."))
    await api.post("/v1/registry/reload", json={"mcpServers": {}})

    stored = await send(api, "GET", "/kept/graph")
    refused = await send(api, "GET", f"/kept/graph?version={draft['version']}", status=422)
    shown = await send(api, "GET", "/kept")
    listed = [one for one in (await send(api, "GET", ""))["teams"] if one["name"] == "kept"]
    await api.post("/v1/registry/rollback", json={})

    assert "server:system_health" in {one["id"] for one in stored["nodes"]}
    assert [one["rule"] for one in refused["errors"]] == ["unknown_server"]
    removed = "Its server 'system_health' was removed."
    assert shown["reason"] == f"No member that uses tools can work: watcher: {removed}"
    assert [one["state"] for one in shown["members"]] == ["degraded", "ready"]
    assert [one["degraded_members"] for one in (shown, *listed)] == [{"watcher": removed}] * 2
    assert (await send(api, "GET", "/kept"))["reason"] == ""


@pytest.mark.parametrize(
    ("kind", "target", "reason", "members"),
    [
        ("agent", "stopped", "The agent stopped is switched off: It is wrong.", {}),
        (
            "server",
            "system_health",
            "No member that uses tools can work: watcher: The server system_health is switched off: It is wrong.",
            {"watcher": "The server system_health is switched off: It is wrong."},
        ),
    ],
)
async def test_team_that_a_kill_switch_stops_has_its_reason(
    api: LiveApi, kind: str, target: str, reason: str, members: dict[str, str]
) -> None:
    await send(api, "POST", "/stopped/versions", {"spec": spec("stopped")}, status=None)
    await send(api, "POST", "/stopped/activate")
    switch = {"kind": kind, "name": target}

    await api.put("/v1/switches", json={**switch, "reason": "It is wrong."})
    shown = await send(api, "GET", "/stopped")
    (listed,) = [one for one in (await send(api, "GET", ""))["teams"] if one["name"] == "stopped"]
    agent = (await api.get("/v1/agents/stopped"))["agent"]
    await api.delete("/v1/switches", params=switch, status=204)

    assert [(one["reason"], one["degraded_members"]) for one in (shown, listed)] == [(reason, members)] * 2
    assert (agent["state"], agent["reason"]) == ("degraded", reason)
    assert (await send(api, "GET", "/stopped"))["reason"] == ""


@pytest.mark.parametrize(
    "request_text", ["use named: show the load average", "Ask the team named to show the load average"]
)
async def test_offline_rules_give_a_request_that_names_a_team_to_it(api: LiveApi, request_text: str) -> None:
    watcher: dict[str, Any] = {**WATCHER, "tools": [], "runtime": "native"}
    await send(api, "POST", "/named/versions", {"spec": spec("named", watcher)}, status=None)
    await send(api, "POST", "/named/activate")

    events = await api.ask(request_text)

    (done,) = [event.data for event in events if event.type == "done"]
    called = [event.data["name"] for event in events if event.type == "tool_start"]
    assert (done["status"], called) == ("succeeded", ["system_health.load"])
