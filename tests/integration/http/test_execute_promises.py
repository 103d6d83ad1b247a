"""What the API promises of single tool calls, as a caller from outside sees it. `starling up` is a process here."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from pydantic import SecretStr

from starling.app.container.database import Database
from starling.app.container.services import open_services
from starling.core.ids import new_id
from starling.core.settings.schema import Settings
from tests.integration.http.conftest import running_api
from tests.support.effect_recorder import EffectRecorder
from tests.support.gateway_harness import SERVERS
from tests.support.http_app import served_api
from tests.support.open_folder import new_open_folder
from tests.support.single_calls import SingleCalls, single_calls
from tests.support.worker_runtime import open_worker_runtime, running_worker

pytestmark = pytest.mark.asyncio(loop_scope="module")

SECRET = "correct-horse-battery-staple"
OPEN = {"/", "/health", "/ready", "/openapi.json", "/docs", "/docs/oauth2-redirect", "/redoc"}


@pytest.fixture(scope="module")
def folder() -> Any:
    with new_open_folder() as folder:
        yield folder


@pytest.fixture(scope="module")
def effects(folder: Path) -> EffectRecorder:
    return EffectRecorder(folder / "effects")


def script(name: str, *arguments: object, env: Mapping[str, str] | None = None, **options: Any) -> dict[str, Any]:
    command = [str(SERVERS / name), *map(str, arguments)]
    return {"command": sys.executable, "args": command, "env": env or {}, "x-starling": options}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(module_database_url: str, folder: Path, effects: EffectRecorder) -> AsyncGenerator[SingleCalls]:
    env = {"PLANTED_0": "${PLANTED}", "PYTHONPATH": str(SERVERS.parents[2])}
    cached = effects.as_server()
    cached["x-starling"]["tools"]["read_it"]["cache_ttl"] = 60
    cached["x-starling"]["tools"]["charge"]["dedup_ttl"] = 60
    told = effects.as_server()
    told["x-starling"]["tools"]["read_it"]["requires_context"] = True
    (folder / "hidden.json").write_text(
        json.dumps([{"name": "order", "description": "Hid\u200bden.", "inputSchema": {"type": "object"}}])
    )
    servers = {
        "effects": effects.as_server(),
        "gated": effects.as_server(approval="always"),
        "hurried": effects.as_server(timeout=1),
        "shops": effects.as_server(tenants=["shop"]),
        "cached": cached,
        "told": told,
        "leaking": script("leaking.py", env=env, tools={"show": {"effect": "read"}}),
        "verbose": script("verbose.py", folder / "verbose", tools={"recite": {"effect": "read"}}),
        "hidden": script("offering.py", folder / "hidden.json", folder / "hidden", effect="read"),
        "broken": {"command": "no-such-command-anywhere"},
    }
    limits = json.dumps({"tool_result_chars": 4_000})
    async with single_calls(folder, servers, module_database_url, PLANTED=SECRET, STARLING_LIMITS=limits) as api:
        yield api
        effects.open("never")  # its calls would be waited for


async def runs(api: SingleCalls, **by: Any) -> list[str]:
    return [run["run_id"] for run in (await api.get("/v1/runs", params={"limit": 100}, **by))["runs"]]


# What there is to call


async def test_tools_are_listed_under_full_names_with_schema_and_effect(api: SingleCalls) -> None:
    tools = await api.tools()

    assert tools["effects.charge"].keys() == {"name", "description", "input_schema", "effect"}
    assert tools["effects.charge"]["input_schema"]["required"] == ["what"]
    assert {tool: tools[f"effects.{tool}"]["effect"] for tool in ("read_it", "put", "charge")} == {
        "read_it": "read",
        "put": "idempotent",
        "charge": "unsafe",
    }
    assert {name for name in tools if name.partition(".")[0] in ("broken", "hidden", "shops")} == set()
    assert all("." in name for name in tools)


async def test_every_listed_tool_can_be_called_and_no_other(api: SingleCalls) -> None:
    listed = await api.tools()

    for tool in listed:
        said = await api.call(tool, wrong={"no": "such argument"}, once=new_id())
        assert said["status"] in ("error", "success", "waiting", "in_doubt"), tool
    for unlisted in (
        "hidden.order", "broken.any", "shops.put", "effects.nothing", "effects", "read_it", ".", "effects.",
        "EFFECTS.read_it", " effects.read_it", "generalist.find_tools", "find_tools", "read_artifact",
        "mcp_agent_effects.read_it", "effects.read_it\0", "e\ud800.x",
    ):  # fmt: skip
        assert unlisted not in listed
        async with api.client.post("/execute", json={"tool_name": unlisted, "arguments": {"what": "x"}}) as response:
            assert response.status in (404, 422), (unlisted, response.status, await response.text())


# Reads


async def test_read_is_answered_at_once_and_leaves_no_run(api: SingleCalls, effects: EffectRecorder) -> None:
    before = await runs(api)

    said = await api.call("effects.read_it", what="light")

    assert said | {"execution_time_ms": 0} == {
        "status": "success",
        "output": "read_it light: fine",
        "execution_time_ms": 0,
        "run_id": None,
        "artifact": None,
    }
    assert 0 < said["execution_time_ms"] < 20_000
    assert await runs(api) == before
    assert effects.done().count("read_it light") == 1


async def test_read_that_takes_longer_than_the_timeout_is_answered_in_time(
    api: SingleCalls, effects: EffectRecorder
) -> None:
    async with asyncio.timeout(10):
        said = await api.call("effects.read_it", what="slow", stall="before", gate="slow", seconds=1)

    assert (said["status"], said["run_id"]) == ("error", None)
    effects.open("slow")


async def test_impatient_callers_do_not_have_calls_of_others_refused(api: SingleCalls, effects: EffectRecorder) -> None:
    for _ in range(6):
        await api.call("effects.read_it", what="impatient", stall="before", gate="impatient", seconds=0.1)
    effects.open("impatient")

    said = await api.call("effects.read_it", what="patient")

    assert (said["status"], said["output"]) == ("success", "read_it patient: fine")


async def test_read_of_a_tool_that_is_told_its_run_or_needs_approval_is_a_run(api: SingleCalls) -> None:
    told = await api.call("told.read_it", what="told")
    gated = await api.call("gated.read_it", what="gated", once="gated-read")

    assert (told["status"], bool(told["run_id"])) == ("success", True)
    assert (gated["status"], bool(gated["run_id"])) == ("waiting", True)
    await api.answer(gated["run_id"], approved=True)
    assert (await api.ended("gated.read_it", "gated-read", what="gated"))["output"] == "read_it gated: fine"


@pytest.mark.parametrize("tool", ["recite", "write"])
async def test_long_result_is_kept_whole_by_a_run(api: SingleCalls, tool: str) -> None:
    short = await api.call(f"verbose.{tool}", lines=2)
    said = await api.call(f"verbose.{tool}", lines=500)

    assert (short["artifact"], bool(said["run_id"])) == (None, True)
    assert len(str(said["output"])) < 5_000
    path = f"/v1/runs/{said['run_id']}/artifacts/{said['artifact']}"
    async with api.client.get(path) as response:
        assert (await response.text()).splitlines()[-1] == "line 00499: and so on"
    await api.get(path, 403, headers=await api.key("service"))


async def test_settings_of_a_tool_hold_for_single_calls(api: SingleCalls, effects: EffectRecorder) -> None:
    reads = [await api.call("cached.read_it", what="cached") for _ in range(2)]
    charges = [await api.call("cached.charge", what="dedup") for _ in range(2)]

    assert [said["output"] for said in reads] == ["read_it cached: fine"] * 2
    assert [said["output"].splitlines()[0] for said in charges] == ["charge dedup: fine"] * 2
    assert (effects.done().count("read_it cached"), effects.done().count("charge dedup")) == (1, 1)
    assert charges[0]["run_id"] != charges[1]["run_id"]


@pytest.mark.parametrize("tool", ["read_it", "charge"])
async def test_error_of_a_tool_is_the_output_and_its_call_made_once(
    api: SingleCalls, effects: EffectRecorder, tool: str
) -> None:
    said = await api.call(f"effects.{tool}", what=f"{tool}-fails", answer="fail")

    assert (said["status"], said["output"]) == ("error", f"{tool} {tool}-fails went wrong")
    assert [line["what"] for line in effects.lines("arrived")].count(f"{tool}-fails") == 1


async def test_binary_result_of_a_read_is_kept_by_a_run(api: SingleCalls) -> None:
    said = await api.call("effects.read_it", what="picture", answer="image")

    [kept] = (await api.get(f"/v1/runs/{said['run_id']}/artifacts"))["artifacts"]
    assert (said["status"], kept["media_type"], kept["id"] in said["output"]) == ("success", "image/png", True)


# Calls that change something


async def test_effectful_call_is_a_run_without_a_model_on_an_unlisted_thread(
    api: SingleCalls, effects: EffectRecorder
) -> None:
    said = await api.call("effects.charge", what="whole")

    run = await api.get(f"/v1/runs/{said['run_id']}", params={"include": "calls"})
    [row] = (await api.get(f"/v1/runs/{said['run_id']}/calls"))["calls"]
    threads = (await api.get("/v1/threads", params={"limit": 200}))["threads"]
    async with api.client.get(f"/v1/runs/{said['run_id']}/events") as response:
        stream = await response.text()
    assert (said["status"], said["output"]) == ("success", "charge whole: fine")
    assert (run["status"], run["result"]["usage"]["model_calls"], run["result"]["usage"]["tool_calls"]) == (
        "succeeded",
        0,
        1,
    )
    assert (row["state"], row["name"]) == ("succeeded", "effects.charge")
    assert run["thread_id"] not in {thread["id"] for thread in threads}
    assert ("event: tool_start" in stream, "event: done" in stream) == (True, True)
    assert effects.done().count("charge whole") == 1


async def test_repeated_key_does_it_once_whatever_the_form_and_the_wait(
    api: SingleCalls, effects: EffectRecorder
) -> None:
    request: dict[str, Any] = {"what": "once", "found": "no"}

    several = await asyncio.gather(*(api.call("effects.charge", once="once", **request) for _ in range(8)))
    later = await api.call("effects.charge", once="once", seconds=30, found="no", what="once")

    assert {(said["status"], said["output"]) for said in (*several, later)} == {("success", "charge once: fine")}
    assert len({said["run_id"] for said in (*several, later)}) == 1
    assert effects.done().count("charge once") == 1


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("effects.charge", {"what": "other"}),
        ("effects.charge", {"what": "mine", "found": ""}),
        ("effects.put", {"what": "mine"}),
        ("gated.charge", {"what": "mine"}),
    ],
)
async def test_key_of_another_call_is_refused(
    api: SingleCalls, effects: EffectRecorder, tool: str, arguments: dict[str, Any]
) -> None:
    await api.call("effects.charge", once="mine", what="mine")
    before = effects.done()

    refused = await api.refused(422, tool, once="mine", **arguments)

    assert refused["code"] == "idempotency_key_reused"
    assert effects.done() == before


async def test_keys_of_calls_and_of_requests_are_the_same_keys(api: SingleCalls) -> None:
    header = {"Idempotency-Key": "shared-1"}
    await api.call("effects.charge", once="shared-1", what="shared")
    await api.post("/v1/runs", 202, json={"input": "hello", "thread_id": "s"}, headers={"Idempotency-Key": "shared-2"})

    as_request = await api.post("/v1/runs", 422, json={"input": "hello", "thread_id": "s"}, headers=header)
    as_call = await api.refused(422, "effects.charge", once="shared-2", what="shared")

    assert {as_request["code"], as_call["code"]} == {"idempotency_key_reused"}


async def test_key_of_another_tenant_is_another_key(api: SingleCalls, effects: EffectRecorder) -> None:
    shop, mill = [await api.key("service", tenant=tenant) for tenant in ("shop", "mill")]

    said = [await api.call("effects.charge", by=by, once="each-tenant", what="each") for by in (shop, mill)]

    assert (effects.done().count("charge each"), len({each["run_id"] for each in said})) == (2, 2)


async def test_repeated_key_shows_nothing_to_who_may_not_call_the_tool(api: SingleCalls) -> None:
    first = await api.call("effects.charge", once="not-yours", what="confidential")
    narrow = await api.key("service", grant={"tools": ["effects.put"]})

    async with api.client.post(
        "/execute",
        json={"tool_name": "effects.charge", "arguments": {"what": "confidential"}},
        headers={"Idempotency-Key": "not-yours", **narrow},
    ) as response:
        said = await response.text()

    assert first["status"] == "success"
    assert "confidential: fine" not in said


async def test_caller_that_disconnects_finds_the_call_by_its_key(api: SingleCalls, effects: EffectRecorder) -> None:
    request = {"tool_name": "effects.charge", "arguments": {"what": "gone", "stall": "before", "gate": "gone"}}
    asking = asyncio.ensure_future(api.client.post("/execute", json=request, headers={"Idempotency-Key": "gone"}))
    await effects.until("arrived", "gone")
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    effects.open("gone")

    said = await api.ended("effects.charge", "gone", what="gone", stall="before", gate="gone")

    assert (said["status"], effects.done().count("charge gone")) == ("success", 1)


async def test_cancelled_call_is_an_error(api: SingleCalls, effects: EffectRecorder) -> None:
    said = await api.call("gated.charge", once="cancelled", what="cancelled")
    await api.waits_for(said["run_id"])
    await api.post(f"/v1/runs/{said['run_id']}/cancel", json={})

    found = await api.ended("gated.charge", "cancelled", what="cancelled")

    assert (found["status"], found["run_id"]) == ("error", said["run_id"])
    assert "charge cancelled" not in effects.done()


async def test_repeated_key_finds_its_call_after_the_server_was_removed(
    api: SingleCalls, effects: EffectRecorder
) -> None:
    await api.post("/v1/servers", 201, json={"name": "brief", "config": effects.as_server()})
    first = await api.call("brief.charge", once="brief", what="brief")
    await api.delete("/v1/servers/brief")

    again = await api.call("brief.charge", once="brief", what="brief")

    assert (again["status"], again["run_id"]) == ("success", first["run_id"])
    await api.refused(404, "brief.charge", what="more")


async def test_single_call_is_not_forked(api: SingleCalls) -> None:
    said = await api.call("effects.charge", what="one")

    assert (await api.post(f"/v1/runs/{said['run_id']}/fork", 409, json={"at": "start"}))["code"] == "not_forkable"


# Approvals and doubts


async def test_result_without_its_promised_form_is_in_doubt(api: SingleCalls) -> None:
    said = [await api.call("effects.invoice", what=answer, answer=answer) for answer in ("text", "number")]

    assert ([each["status"] for each in said], said[1]["output"]) == (["in_doubt", "success"], {"number": 4711})


@pytest.mark.parametrize(("approved", "status", "times"), [(True, "success", 1), (False, "error", 0)])
async def test_call_waits_for_a_person(
    api: SingleCalls, effects: EffectRecorder, *, approved: bool, status: str, times: int
) -> None:
    what = f"approved {approved}"
    service = await api.key("service")
    async with asyncio.timeout(15):
        said = await api.call("gated.charge", by=service, once=what, what=what)
    asked = await api.waits_for(said["run_id"])
    meanwhile = await api.call("gated.charge", by=service, once=what, what=what, seconds=1)
    path, yes = f"/v1/approvals/{asked['id']}", {"status": "resolved", "payload": {"approved": True}}
    await api.post(path, 403, json=yes, headers=service)
    await api.post(path, 403, json=yes, headers=await api.key("run", grant={"tools": ["gated.put"]}))
    await api.post(path, 404, json=yes, headers=await api.key("run", tenant="mill"))
    assert effects.done().count(f"charge {what}") == 0
    note: dict[str, Any] = {} if approved else {"note": "Too dear."}
    await api.answer(said["run_id"], approved=approved, **note)

    found = await api.ended("gated.charge", what, by=service, what=what)

    assert (asked["call"]["name"], asked["call"]["args"]) == ("gated.charge", {"what": what})
    assert (said["status"], meanwhile["status"], meanwhile["run_id"]) == ("waiting", "waiting", said["run_id"])
    assert (found["status"], "Too dear." in str(found["output"])) == (status, not approved)
    assert effects.done().count(f"charge {what}") == times


@pytest.mark.parametrize("way", ["malformed", "slow"])
async def test_call_without_a_usable_result_is_in_doubt(api: SingleCalls, effects: EffectRecorder, way: str) -> None:
    request: dict[str, Any] = {"malformed": {"answer": "malformed"}, "slow": {"stall": "after", "gate": "never"}}[way]

    said = await api.call("hurried.charge", once=way, seconds=20, what=way, **request)
    again = await api.call("hurried.charge", once=way, seconds=5, what=way, **request)

    assert [(each["status"], bool(each["run_id"])) for each in (said, again)] == [("in_doubt", True)] * 2
    assert effects.done().count(f"charge {way}") == 1


@pytest.mark.parametrize(
    ("resolution", "status"), [("done", "success"), ("not_done", "success"), ("give_up", "in_doubt")]
)
async def test_person_decides_what_came_of_a_call_in_doubt(
    api: SingleCalls, effects: EffectRecorder, resolution: str, status: str
) -> None:
    gate = f"decided-{resolution}"
    request: dict[str, Any] = {"what": gate, "stall": "before", "gate": gate}
    said = await api.call("hurried.charge", once=gate, seconds=20, **request)
    effects.open(gate)
    found_out: dict[str, Any] = {"resolution": resolution} | (
        {"result": "receipt 4711"} if resolution == "done" else {}
    )
    await api.answer(said["run_id"], **found_out)

    await api.run_ended(said["run_id"])
    found = await api.call("hurried.charge", once=gate, seconds=20, **request)

    assert (said["status"], found["status"], found["run_id"]) == ("in_doubt", status, said["run_id"])
    assert ("receipt 4711" in str(found["output"])) is (resolution == "done")


# What is refused


@pytest.mark.parametrize("effect", ["read_it", "charge"])
@pytest.mark.parametrize(
    "arguments", [{}, {"what": 5}, {"what": None}, {"what": "a\0b"}, {"what": "\ud800"}, {"what": "x", "more": 10**400}]
)
async def test_arguments_that_cannot_be_sent_are_an_error_and_nothing_is_called(
    api: SingleCalls, effects: EffectRecorder, effect: str, arguments: dict[str, Any]
) -> None:
    before = effects.lines("arrived")

    async with api.client.post("/execute", json={"tool_name": f"effects.{effect}", "arguments": arguments}) as response:
        said = await response.json()

    assert (response.status == 422) or (response.status, said["status"]) == (200, "error"), said
    assert effects.lines("arrived") == before


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"null", b"[]", b"{", b'"effects.read_it"', b'{"arguments": {}}', b'{"tool_name": ""}'),
        *(b'{"tool_name": null}', b'{"tool_name": ["effects.read_it"]}'),
        *(
            b'{"tool_name": "effects.read_it", ' + more + b"}"
            for more in (
                *(b'"arguments": []', b'"arguments": "{}"', b'"arguments": null', b'"arguments": {"what": "\xff"}'),
                *(b'"timeout": 0', b'"timeout": -1', b'"timeout": NaN', b'"timeout": 1e999', b'"timeout": 3601'),
                *(b'"timeout": "soon"', b'"tenant": "shop"'),
            )
        ),
    ],
)
async def test_body_that_is_no_call_is_refused(api: SingleCalls, body: bytes) -> None:
    problem = await api.post("/execute", 422, data=body, headers={"content-type": "application/json"})

    assert problem["code"] == "invalid_request"


@pytest.mark.parametrize("key", [" " * 256, "a" * 256, "é"])
async def test_idempotency_key_that_cannot_be_kept_is_refused(api: SingleCalls, key: str) -> None:
    await api.refused(422, "effects.charge", once=key, what="odd key")


async def test_secret_that_a_tool_gives_away_is_masked(api: SingleCalls) -> None:
    shown, failed = await api.call("leaking.show"), await api.call("leaking.fail")

    kept = [await api.get(f"/v1/runs/{failed['run_id']}", params={"include": "tasks,calls"}), shown, failed]
    assert (shown["status"], failed["status"]) == ("success", "error")
    assert SECRET not in json.dumps(kept)
    assert "***" in json.dumps(shown)


async def test_call_with_a_secret_is_not_made(api: SingleCalls, effects: EffectRecorder) -> None:
    said = [await api.call(f"effects.{tool}", what=f"a {SECRET} b") for tool in ("read_it", "charge")]

    assert [each["status"] for each in said] == ["error"] * 2
    assert SECRET not in json.dumps(said)
    assert SECRET not in effects.file.read_text()


# Doors: scopes, grants, tenants, switches


async def test_service_key_opens_two_doors_and_no_other(api: SingleCalls) -> None:
    service = await api.key("service")
    paths: dict[str, dict[str, Any]] = (await api.get("/openapi.json"))["paths"]
    statuses: dict[str, int] = {}

    for path, methods in paths.items():
        for method in methods:
            async with api.client.request(method, path.replace("{", "").replace("}", ""), headers=service) as response:
                statuses[f"{method.upper()} {path}"] = response.status

    allowed = {asked for asked, status in statuses.items() if status != 403}
    of_sessions = {"/v1/console/codes", "/v1/console/session", "/v1/console/sessions"}  # which do what their key may
    assert {asked.partition(" ")[2] for asked in allowed} - OPEN - of_sessions == {"/tools", "/execute"}
    assert len(statuses) > 50


@pytest.mark.parametrize("scope", ["teams", "servers", "admin"])
async def test_other_scopes_do_not_open_these_doors(api: SingleCalls, scope: str) -> None:
    key = await api.key(scope)

    listed = await api.get("/tools", 403, headers=key)
    called = await api.refused(403, "effects.read_it", by=key, what="x")

    assert {listed["code"], called["code"]} == {"forbidden"}


async def test_scope_of_runs_opens_these_doors_too(api: SingleCalls) -> None:
    key = await api.key("run")

    said = await api.call("effects.read_it", by=key, what="run")

    assert (said["status"], "effects.read_it" in await api.tools(key)) == ("success", True)


async def test_grant_of_the_key_limits_list_and_calls(api: SingleCalls, effects: EffectRecorder) -> None:
    narrow = await api.key("service", grant={"tools": ["effects.put"], "servers": ["verbose"]})
    before = effects.lines("arrived")

    listed = await api.tools(narrow)
    for tool in ("effects.charge", "effects.read_it", "cached.put", "nowhere.put"):
        await api.refused(404, tool, by=narrow, what="narrow")
    done = await api.call("effects.put", by=narrow, what="narrow")

    assert listed.keys() == {"effects.put", *(name for name in await api.tools() if name.startswith("verbose."))}
    assert (done["status"], len(effects.lines("arrived"))) == ("success", len(before) + 1)


async def test_tenants_see_their_servers_and_runs_only(api: SingleCalls, effects: EffectRecorder) -> None:
    shop, mill = [await api.key("service", "run", tenant=tenant) for tenant in ("shop", "mill")]

    done = await api.call("shops.charge", by=shop, what="shops")
    await api.refused(404, "shops.charge", by=mill, what="mills")
    hidden = [await api.tools(shop), await api.tools(mill)]

    assert ["shops.charge" in tools for tools in hidden] == [True, False]
    assert effects.done().count("charge shops") == 1
    for path in ("", "/calls", "/events", "/artifacts", "/explanation"):
        await api.get(f"/v1/runs/{done['run_id']}{path}", 404, headers=mill)
    assert done["run_id"] not in await runs(api, headers=mill)


@pytest.mark.parametrize(
    ("kind", "name"), [("server", "effects"), ("agent", "mcp_agent_effects"), ("tenant", "default"), ("tenant", "*")]
)
async def test_kill_switch_stops_single_calls(api: SingleCalls, effects: EffectRecorder, kind: str, name: str) -> None:
    before = effects.lines("arrived")

    async with api.switched_off(kind, name):
        said = [await api.call(f"effects.{tool}", what="off") for tool in ("read_it", "put", "charge")]
        listed = [tool for tool in await api.tools() if tool.startswith("effects.")]
    after = await api.call("effects.read_it", what="on again")

    assert [(each["status"], "It is being tested." in str(each["output"])) for each in said] == [("error", True)] * 3
    assert (listed, after["status"]) == ([], "success")
    assert len(effects.lines("arrived")) == len(before) + 1


async def test_call_that_waits_is_not_made_once_its_key_is_revoked(api: SingleCalls, effects: EffectRecorder) -> None:
    key_id, key = await api.new_key("service")
    said = await api.call("gated.charge", by=key, once="revoked", what="revoked")
    await api.waits_for(said["run_id"])
    await api.delete(f"/v1/keys/{key_id}")
    await asyncio.sleep(2)
    await api.answer(said["run_id"], approved=True)

    run = await api.run_ended(said["run_id"])
    assert run["status"] == "failed"
    assert "charge revoked" not in effects.done()
    await api.refused(401, "gated.charge", by=key, once="revoked", what="revoked")


# Without sessions


async def test_read_of_a_process_without_sessions_is_a_run(database_url: str, tmp_path: Path) -> None:
    effects = EffectRecorder(tmp_path / "effects")
    async with running_api(database_url, tmp_path, {"effects": effects.as_server()}) as serve:
        body = {"tool_name": "effects.read_it", "arguments": {"what": "there"}}
        several = [await serve.post("/execute", json=body, headers={"Idempotency-Key": "there"}) for _ in range(2)]
        other = {"tool_name": "effects.read_it", "arguments": {"what": "elsewhere"}}
        await serve.post("/execute", 422, json=other, headers={"Idempotency-Key": "there"})
        async with aiohttp.ClientSession(serve.url) as nobody, nobody.get("/tools") as listed:
            names = {tool["name"] for tool in (await listed.json())["tools"]}

    assert [(said["status"], said["output"]) for said in several] == [("success", "read_it there: fine")] * 2
    assert several[0]["run_id"] == several[1]["run_id"] is not None
    assert effects.done() == ["read_it there"]
    assert "effects.read_it" in names


@pytest.mark.parametrize("tool", ["read_it", "charge"])
async def test_call_waits_for_a_worker_as_long_as_its_caller_says(database_url: str, tmp_path: Path, tool: str) -> None:
    effects, file = EffectRecorder(tmp_path / "effects"), tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"effects": effects.as_server()}}))
    settings = Settings(database_url=SecretStr(database_url), mcp_config=file, model=("offline:rules",))
    body = {"tool_name": f"effects.{tool}", "arguments": {"what": "patience"}}
    async with (
        open_services(settings, Database(database_url, database_url)) as services,
        open_worker_runtime(settings, services) as runtime,
        served_api(settings, services) as serve,
    ):
        waits = await serve.post("/execute", json={**body, "timeout": 0.5}, headers={"Idempotency-Key": "p"})
        async with running_worker(runtime.worker):
            said = await serve.post("/execute", json={**body, "timeout": 60}, headers={"Idempotency-Key": "p"})

    assert (waits["status"], said["status"], said["run_id"]) == ("waiting", "success", waits["run_id"])
    assert effects.done() == [f"{tool} patience"]
