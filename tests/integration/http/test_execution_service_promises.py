"""What comes of single calls of an execution service that lies, hangs and goes away, over a whole platform."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import psycopg
import pytest
import pytest_asyncio

from tests.support.effect_recorder import EffectRecorder
from tests.support.lying_service import SCHEMA, TOOLS, LyingService, Reply
from tests.support.open_folder import new_open_folder
from tests.support.single_calls import SingleCalls, single_calls

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOKEN, CONTEXT_TOKEN = "token-of-the-execution-service", "token-of-the-context-service"
NAME = "execution_service"
DOUBTS: dict[str, Reply] = {
    "done with 500": Reply.of({"status": "success", "output": "fine"}, 500),
    "waiting": Reply.of({"status": "waiting", "output": "later", "run_id": "r"}),
    "not json": Reply(b"<html>fine</html>"),
    "half": Reply(b'{"status": "succ', cut=True),
    "cut": Reply(cut=True),
    "latin": Reply('{"status": "success", "output": "é"}'.encode("latin-1")),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def service() -> AsyncGenerator[LyingService]:
    async with LyingService(dict(DOUBTS)).serving() as service:
        yield service


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def context() -> AsyncGenerator[LyingService]:
    async with LyingService().serving() as context:
        yield context


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(module_database_url: str, service: LyingService, context: LyingService) -> AsyncGenerator[SingleCalls]:
    environment = {
        "EXECUTION_SERVICE_URL": f"{service.url}/base",
        "EXECUTION_SERVICE_TOKEN": TOKEN,
        "CONTEXT_SERVICE_URL": f"{context.url}/told",
        "CONTEXT_SERVICE_TOKEN": CONTEXT_TOKEN,
    }
    with new_open_folder() as folder:
        shops = {
            "type": NAME,
            "url": f"{service.url}/base",
            "headers": {"Authorization": "Bearer ${EXECUTION_SERVICE_TOKEN}"},
        }
        servers = {
            "effects": EffectRecorder(folder / "effects").as_server(),
            "shops": {**shops, "x-starling": {"tenants": ["shop"]}},
        }
        async with single_calls(folder, servers, module_database_url, **environment) as api:
            await api.put(f"/v1/servers/{NAME}/tools/look", json={"effect": "read", "timeout": 2})
            await api.put(f"/v1/servers/{NAME}/tools/act", json={"timeout": 2})
            yield api


async def working(api: SingleCalls) -> None:
    """Return once calls of the service are made again, should they have failed at once."""
    async with asyncio.timeout(60):
        while (await api.call(f"{NAME}.look", how="ok"))["status"] != "success":  # noqa: ASYNC110 - the breaker's clock
            await asyncio.sleep(0.1)


async def test_service_is_one_server_with_one_specialist(api: SingleCalls) -> None:
    agents = [agent for agent in (await api.get("/v1/agents"))["agents"] if NAME in agent["name"]]
    tools = {name: tool["effect"] for name, tool in (await api.tools()).items() if name.startswith(f"{NAME}.")}

    assert [(agent["name"], agent["state"]) for agent in agents] == [(f"mcp_agent_{NAME}", "ready")]
    assert tools == {f"{NAME}.act": "unsafe", f"{NAME}.look": "read"}


async def test_reload_of_a_file_keeps_the_service_and_the_effects_set_for_it(api: SingleCalls) -> None:
    await api.post("/v1/registry/reload", json={"mcpServers": dict(api.platform.mcp_servers)})

    assert (await api.tools())[f"{NAME}.look"]["effect"] == "read"


@pytest.mark.parametrize("output", ["fine", {"a": [1]}, [1, {"b": None}]])
async def test_output_of_the_service_is_the_output(api: SingleCalls, service: LyingService, output: Any) -> None:
    how = f"output {json.dumps(output)}"
    service.replies[how] = Reply.of({"status": "success", "output": output})

    said = [await api.call(f"{NAME}.{tool}", how=how) for tool in ("act", "look")]

    shown = [output if each["output"] == output else json.loads(each["output"]) for each in said]
    assert ([each["status"] for each in said], shown) == (["success"] * 2, [output] * 2)
    assert isinstance(said[0]["output"], str) or isinstance(output, dict)


@pytest.mark.parametrize("how", DOUBTS)
async def test_call_that_may_have_been_made_is_in_doubt_and_made_once(
    api: SingleCalls, service: LyingService, how: str
) -> None:
    said = await api.call(f"{NAME}.act", once=how, seconds=30, how=how)
    again = await api.call(f"{NAME}.act", once=how, seconds=5, how=how)
    made = len(service.executed(how))
    read = await api.call(f"{NAME}.look", how=how)
    await working(api)

    assert [(each["status"], bool(each["run_id"])) for each in (said, again)] == [("in_doubt", True)] * 2
    assert made == 1
    assert (read["status"], bool(read["output"])) == ("error", True)


async def test_read_is_repeated_once_over_a_lost_connection(api: SingleCalls, service: LyingService) -> None:
    service.replies["lost once"] = Reply(cut=True, once=True)

    said = await api.call(f"{NAME}.look", how="lost once")

    assert (said["status"], len(service.executed("lost once"))) == ("success", 2)


async def test_too_long_answer_is_not_used_and_a_long_one_is_kept(api: SingleCalls, service: LyingService) -> None:
    service.replies["16 MiB"] = Reply.of({"status": "success", "output": "x" * 2**24})
    service.replies["long"] = Reply.of({"status": "success", "output": "y" * 200_000})

    too_long = await api.call(f"{NAME}.act", seconds=60, how="16 MiB")
    kept = [await api.call(f"{NAME}.{tool}", seconds=60, how="long") for tool in ("act", "look")]
    await working(api)

    assert too_long["status"] == "in_doubt"
    for said in kept:
        path = f"/v1/runs/{said['run_id']}/artifacts/{said['artifact']}"
        async with api.client.get(path) as response:
            assert await response.text() == "y" * 200_000


async def test_idempotency_key_is_sent_with_calls_that_may_change_something(
    api: SingleCalls, service: LyingService
) -> None:
    for tool, once in (("act", "a"), ("act", "b"), ("look", "c")):
        await api.call(f"{NAME}.{tool}", once=f"{once}-key", how=f"key of {tool}")

    keys = [request.headers.get("Idempotency-Key") for request in service.executed("key of act")]
    assert len({key for key in keys if key}) == 2
    assert [request.headers.get("Idempotency-Key") for request in service.executed("key of look")] == [None]
    assert {request.headers["Authorization"] for request in service.requests} == {f"Bearer {TOKEN}"}
    assert {request.path for request in service.requests} == {"/base/tools", "/base/execute"}


async def test_switch_and_grant_stop_calls_of_the_service(api: SingleCalls, service: LyingService) -> None:
    narrow = await api.key("service", grant={"tools": [f"{NAME}.look"]})
    other = await api.key("service", grant={"servers": ["effects"]})

    await api.refused(404, f"{NAME}.act", by=narrow, how="forbidden")
    await api.refused(404, f"{NAME}.look", by=other, how="forbidden")
    async with api.switched_off("server", NAME, f"{NAME}.look"):
        off = [await api.call(f"{NAME}.{tool}", how="forbidden") for tool in ("act", "look")]

    assert [each["status"] for each in off] == ["error"] * 2
    assert service.executed("forbidden") == []


async def test_tool_whose_own_name_has_dots_is_granted_set_and_called_by_its_whole_name(
    api: SingleCalls, service: LyingService
) -> None:
    """As those of another Starling are named."""
    service.tools = Reply.of([{"name": f"effects.{name}", "input_schema": SCHEMA} for name in ("put", "get")])
    server = {"type": NAME, "url": service.url, "x-starling": {"tools": {"effects.get": {"effect": "read"}}}}
    try:
        await api.post("/v1/servers", 201, json={"name": "inner", "config": server})
        narrow = await api.key("service", grant={"tools": ["inner.effects.put"]})
        await api.put("/v1/servers/inner/tools/effects.put", json={"effect": "idempotent"})

        said = await api.call("inner.effects.put", by=narrow, once="dotted", how="dotted")
        again = await api.call("inner.effects.put", by=narrow, once="dotted", how="dotted")
        read = await api.call("inner.effects.get", how="dotted")
        listed = await api.tools(narrow)
    finally:
        service.tools = Reply.of(TOOLS)

    await api.refused(404, "inner.effects.get", by=narrow, how="dotted")
    assert [each["status"] for each in (said, again, read)] == ["success"] * 3
    assert (said["run_id"], read["run_id"]) == (again["run_id"], None)
    assert {name: tool["effect"] for name, tool in listed.items()} == {"inner.effects.put": "idempotent"}
    assert [call.body["tool_name"] for call in service.executed("dotted")] == ["effects.put", "effects.get"]


async def test_tenants_call_services_of_theirs_only(api: SingleCalls, service: LyingService) -> None:
    shop, mill = [await api.key("service", tenant=tenant) for tenant in ("shop", "mill")]

    for tool in ("act", "look"):
        assert (await api.call(f"shops.{tool}", by=shop, how="shops"))["status"] == "success"
        await api.refused(404, f"shops.{tool}", by=mill, how="mills")

    assert {"shops.act" in await api.tools(by) for by in (shop,)} == {True}
    assert "shops.act" not in await api.tools(mill)
    assert (len(service.executed("shops")), service.executed("mills")) == (2, [])


async def test_tokens_of_services_are_in_no_row_and_open_no_door(api: SingleCalls, module_database_url: str) -> None:
    await api.call(f"{NAME}.act", how="stored")
    with psycopg.connect(module_database_url) as connection:
        tables = [row[0] for row in connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")]
        rows = [str(row) for table in tables for row in connection.execute(f'SELECT t::text FROM "{table}" t'.encode())]  # noqa: S608

    assert [row[:200] for row in rows if TOKEN in row or CONTEXT_TOKEN in row] == []
    for token in (TOKEN, CONTEXT_TOKEN):
        await api.get("/tools", 401, headers={"Authorization": f"Bearer {token}"})


async def test_context_service_is_told_of_calls_that_are_runs_and_nothing_else_of_them(
    api: SingleCalls, context: LyingService
) -> None:
    read = await api.call(f"{NAME}.look", how="told of a read")
    said = await api.call(f"{NAME}.act", how="told of a change")

    async with asyncio.timeout(60):
        while "run_completed" not in told_of(context, said["run_id"]):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)
    events = json.dumps([request.body for request in context.requests])
    assert told_of(context, said["run_id"]) == ["run_started", "run_completed"]
    assert read["run_id"] is None
    assert {(request.path, request.headers["Authorization"]) for request in context.requests} == {
        ("/told/events", f"Bearer {CONTEXT_TOKEN}")
    }
    assert [word for word in ("told of a", TOKEN, CONTEXT_TOKEN, "sk-starling") if word in events] == []


@pytest.mark.parametrize(
    "reply", [Reply.of({}, 500), Reply.of({}, 401), Reply(b"<html>"), Reply(cut=True), Reply(hang=True)], ids=range(5)
)
async def test_context_service_that_fails_holds_up_no_call(
    api: SingleCalls, context: LyingService, reply: Reply
) -> None:
    context.others = reply
    try:
        async with asyncio.timeout(15):
            said = await api.call(f"{NAME}.act", how="held up")
    finally:
        context.others = Reply.of({})

    assert said["status"] == "success"


def told_of(context: LyingService, run_id: str) -> list[str]:
    bodies = {request.headers["Idempotency-Key"]: request.body for request in context.requests}
    return [body["event_type"] for body in bodies.values() if body["payload"].get("run_id") == run_id]


async def test_inprocess_server_is_refused_to_keys(api: SingleCalls) -> None:
    body = {"name": "inner", "config": {"type": "inprocess", "entry_point": "functions"}}

    refused = await api.post("/v1/servers", 403, json=body, headers=await api.key("admin"))

    assert refused["code"] == "forbidden"
    reload = {"mcpServers": {"inner": body["config"]}}
    await api.post("/v1/registry/reload", 403, json=reload, headers=await api.key("admin"))


async def test_service_of_a_key_has_to_be_at_a_public_address(api: SingleCalls, service: LyingService) -> None:
    before = len(service.requests)
    body = {"name": "inner", "config": {"type": "execution_service", "url": service.url}}

    await api.post("/v1/servers", 403, json=body, headers=await api.key("admin"))

    assert len(service.requests) == before


async def test_service_token_of_this_platform_makes_it_the_service_of_another(api: SingleCalls) -> None:
    """The platform is asked as a service asks it, with each form of a key."""
    key_id, key = await api.new_key("service", grant={"tools": ["effects.put", "effects.read_it"]})
    said = await api.post(
        "/execute",
        json={"tool_name": "effects.put", "arguments": {"what": "of another"}, "timeout": 30.0},
        headers=key,
    )
    listed = (await api.get("/tools", headers=key))["tools"]
    await api.delete(f"/v1/keys/{key_id}")
    await asyncio.sleep(2)

    assert said["status"] == "success"
    assert {tool["name"] for tool in listed} == {"effects.put", "effects.read_it"}
    await api.get("/tools", 401, headers=key)
    await api.refused(401, "effects.put", by=key, what="revoked")


async def test_service_that_goes_away_fails_nothing_else_and_is_used_again(
    api: SingleCalls, service: LyingService, context: LyingService
) -> None:
    """The last test: the service of this module ends."""
    del service, context
    away = LyingService()
    config = {"type": NAME, "url": away.url, "x-starling": {"tools": {"look": {"effect": "read"}}}}
    async with away.serving():
        await api.post("/v1/servers", 201, json={"name": "away", "config": config})
        first = await api.call("away.act", how="first")
    gone = [await api.call(f"away.{tool}", seconds=30, once=tool, how="gone") for tool in ("act", "look")]
    other = await api.call("effects.read_it", what="other")
    async with away.serving(), asyncio.timeout(60):
        while (back := await api.call("away.look", how="back"))["status"] != "success":  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        last = await api.call("away.act", how="back")
        repeated = await api.call("away.act", once="act", how="gone")

    assert (first["status"], other["status"], back["status"], last["status"]) == ("success",) * 4
    assert [each["status"] for each in gone] == ["error"] * 2
    assert (repeated["status"], repeated["run_id"]) == ("error", gone[0]["run_id"])
    assert away.executed("gone") == []
