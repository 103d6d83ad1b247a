"""Runs in the background, their cancellation, and repeated requests with an idempotency key."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio
from pydantic import SecretStr

from starling.app.container.database import Database
from starling.app.container.services import open_services
from starling.core.ids import new_id
from starling.core.principal import Scope
from starling.core.settings.schema import Limits, Settings
from tests.integration.http.conftest import LiveApi
from tests.support.http_app import served_api
from tests.support.sse import Event, read_events
from tests.support.stored_runs import events_of, stored_run

pytestmark = pytest.mark.asyncio(loop_scope="module")

QUESTION = "How full is this disk?"
ASKING = ("/v1/runs", "/v1/agent/run", "/process")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def second_url(api: LiveApi, module_database_url: str) -> AsyncGenerator[str]:
    """The address of another API over the same database, without a worker."""
    del api
    settings = Settings(database_url=SecretStr(module_database_url))
    async with (
        open_services(settings, Database(module_database_url, module_database_url)) as services,
        served_api(settings, services) as served,
    ):
        yield served.url


async def test_tenant_with_as_many_waiting_runs_as_may_be_is_refused_until_one_is_gone(database_url: str) -> None:
    limits = Limits(queued_runs_per_tenant=2)
    settings = Settings(database_url=SecretStr(database_url), limits=limits)
    async with (
        open_services(settings, Database(database_url, database_url)) as services,
        served_api(settings, services) as served,
    ):
        api = LiveApi(served.url, served.client, services)
        others = await api.key(Scope.RUN, tenant="other")
        waiting = [await begin(api, request()) for _ in range(2)]
        async with api.client.post("/v1/runs", json=request()) as response:
            refused, told = response.headers["Retry-After"], await response.json()
        await api.post("/v1/runs", 202, json=request(), headers=others)
        await api.post(f"/v1/runs/{waiting[0]['run_id']}/cancel")
        await begin(api, request())
        listed = (await get(api, "/v1/runs"))["runs"]

    assert (response.status, told["code"], int(refused) > 0) == (429, "backlog_full", True)
    assert "limits.queued_runs_per_tenant" in told["remedy"]
    assert len(listed) == 3


def request(**more: Any) -> dict[str, Any]:
    return {"input": QUESTION, "thread_id": new_id(), **more}


async def begin(api: LiveApi, body: dict[str, Any], key: str | None = None, url: str = "") -> dict[str, Any]:
    headers = {"Idempotency-Key": key} if key else {}
    return await api.post(f"{url or api.url}/v1/runs", json=body, headers=headers, status=202)


async def get(api: LiveApi, path: str, **query: Any) -> dict[str, Any]:
    return await api.get(path, params=query)


async def stream_of(api: LiveApi, run_id: str, url: str = "") -> list[Event]:
    async with api.client.get(f"{url or api.url}/v1/runs/{run_id}/events") as response:
        assert response.status == 200, await response.text()
        return [event async for event in read_events(response)]


async def sent(api: LiveApi, path: str, body: dict[str, Any], key: str) -> tuple[int, dict[str, Any]]:
    async with api.client.post(path, json=body, headers={"Idempotency-Key": key}) as response:
        if response.content_type == "text/event-stream":
            return response.status, (await anext(read_events(response))).data
        return response.status, await response.json()


async def test_background_run_completes_and_reports_its_status(api: LiveApi) -> None:
    body = request(correlation_id="c-1")

    async with api.client.post("/v1/runs", json=body) as response:
        begun = await response.json()
    events = await stream_of(api, begun["run_id"])
    state = await get(api, response.headers["Location"])

    assert response.status == 202
    assert response.headers["Location"] == f"/v1/runs/{begun['run_id']}"
    assert begun["status"] == "queued"
    assert (begun["thread_id"], begun["correlation_id"]) == (body["thread_id"], "c-1")
    assert {state[name] == begun[name] for name in begun if name != "status"} == {True}
    assert (state["status"], state["input"], state["events"]) == ("succeeded", QUESTION, len(events))
    assert state["result"]["reply"] == events[-1].data["reply"]
    assert state["created_at"] <= state["started_at"] <= state["ended_at"]
    assert (state["why"], state["behind"], state["interrupts"]) == (None, None, [])


async def test_run_is_readable_at_another_process(api: LiveApi, second_url: str) -> None:
    begun = await begin(api, request(), url=second_url)

    here, there = await asyncio.gather(stream_of(api, begun["run_id"]), stream_of(api, begun["run_id"], url=second_url))

    assert here == there
    assert here[-1].data["status"] == "succeeded"


async def test_runs_are_listed_newest_first_in_pages(api: LiveApi) -> None:
    thread = new_id()
    made = [(await begin(api, request(thread_id=thread)))["run_id"] for _ in range(5)]
    await begin(api, request())

    first = await get(api, "/v1/runs", thread_id=thread, limit=2)
    second = await get(api, "/v1/runs", thread_id=thread, limit=2, before=first["next"])
    last = await get(api, "/v1/runs", thread_id=thread, limit=2, before=second["next"])

    assert [run["run_id"] for page in (first, second, last) for run in page["runs"]] == made[::-1]
    assert last["next"] is None
    assert first["runs"][0]["input"] == QUESTION


async def test_runs_are_found_by_the_ending_of_their_id(api: LiveApi) -> None:
    made = (await begin(api, request()))["run_id"]

    found = await get(api, "/v1/runs", ending=made.replace("-", "")[-13:])
    none = await get(api, "/v1/runs", ending=made.replace("-", "")[-5:-1] + ("0" if made[-1] != "0" else "1"))

    assert [run["run_id"] for run in found["runs"]] == [made]
    assert made not in [run["run_id"] for run in none["runs"]]


async def test_run_with_its_tasks_holds_plans_attempts_and_result(api: LiveApi) -> None:
    run = (await begin(api, request()))["run_id"]
    await stream_of(api, run)

    document = await get(api, f"/v1/runs/{run}?include=tasks,calls")

    assert (document["run_id"], document["status"]) == (run, "succeeded")
    assert document["tasks"]
    assert document["plans"][0]["thought_process"]
    assert [attempt["verdict"]["status"] for attempt in document["tasks"][0]["attempts"]] == ["APPROVED"]
    assert document["result"]["reply"]


async def test_run_with_hundreds_of_calls_is_complete_with_each_text_cut(api: LiveApi) -> None:
    steps = [{"path": f"t{n}", "model": "m", "prompt": {"name": f"worker {n}"}} for n in range(1, 501)]
    key = await stored_run(api.services.storage.engine, events_of(500, chars=15_000), steps)

    document = await get(api, f"/v1/runs/{key.id}?include=tasks,calls,prompts")

    attempts = [attempt for task in document["tasks"] for attempt in task["attempts"]]
    assert [len(document[part]) for part in ("tasks", "prompts", "pruned")] == [500, 500, 0]
    assert [(len(one["calls"]), len(one["model_calls"])) for one in attempts] == [(1, 1)] * 500
    assert {len(one["calls"][0]["result"]) for one in attempts[:-1]} == {4_000}
    assert len(json.dumps(document)) < 500 * 6_000


async def test_runs_are_listed_by_status(api: LiveApi) -> None:
    thread = new_id()
    run = (await begin(api, request(thread_id=thread)))["run_id"]
    await stream_of(api, run)

    assert [
        found["run_id"] for found in (await get(api, "/v1/runs", thread_id=thread, status="succeeded"))["runs"]
    ] == [run]
    assert (await get(api, "/v1/runs", thread_id=thread, status="failed"))["runs"] == []


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/runs/01a1f94a-ae93-72f0-90c0-62dd857f9816", 404),
        ("/v1/runs/01a1f94a-ae93-7367-aff2-f5193aeca0fa/events", 404),
        ("/v1/runs/nothing", 422),
        ("/v1/runs?before=nothing", 422),
        ("/v1/runs?status=gone", 422),
        ("/v1/runs?limit=0", 422),
        ("/v1/runs?ending=4e", 422),
        ("/v1/runs?ending=xyzt", 422),
        ("/v1/runs/01a1f94a-ae93-72f0-90c0-62dd857f9816?include=tasks", 404),
        ("/v1/servers/nobody", 404),
        ("/v1/runs?limit=100000", 422),
        ("/v1/runs?state=failed", 422),
        ("/v1/approvals?run=01a1f94a-ae93-72f0-90c0-62dd857f9816", 422),
    ],
)
async def test_unknown_resource_or_invalid_parameter_is_a_problem(api: LiveApi, path: str, status: int) -> None:
    async with api.client.get(path) as response:
        assert response.status == status
        assert response.content_type == "application/problem+json"


async def test_repeated_idempotency_key_is_one_run_across_routes_and_processes(api: LiveApi, second_url: str) -> None:
    body, key = request(), new_id()

    first = await begin(api, body, key)
    again = await begin(api, body, key, url=second_url)
    _, started = await sent(api, "/v1/agent/run", body, key)
    status, result = await sent(api, "/process", body, key)
    other_names = {"message": body["input"], "session_id": body["thread_id"]}
    _, same = await sent(api, "/process", other_names, key)

    assert {run["run_id"] for run in (first, again, started, result, same)} == {first["run_id"]}
    assert again["trace_id"] == first["trace_id"]
    assert status == 200
    assert result == same
    assert result["status"] == "succeeded"
    assert len((await get(api, "/v1/runs", thread_id=body["thread_id"]))["runs"]) == 1


async def test_repeated_stream_request_is_streamed_from_the_start(api: LiveApi) -> None:
    body, headers = request(), {"Idempotency-Key": new_id()}

    streams: list[list[Event]] = []
    for _ in range(2):
        async with api.client.post("/v1/agent/run", json=body, headers=headers) as response:
            streams.append([event async for event in read_events(response)])

    assert streams[0] == streams[1]
    assert streams[0][0].type == "run_started"
    assert streams[0][-1].type == "done"


async def test_concurrent_requests_with_one_idempotency_key_are_one_run(api: LiveApi, second_url: str) -> None:
    body, key = request(), new_id()

    waiting = asyncio.get_running_loop().create_task(sent(api, "/process", body, key))
    begun = await asyncio.gather(*(begin(api, body, key, url) for url in (api.url, second_url) * 4))
    _, result = await waiting

    assert {run["run_id"] for run in begun} == {result["run_id"]}
    assert len((await get(api, "/v1/runs", thread_id=body["thread_id"]))["runs"]) == 1


@pytest.mark.parametrize("path", ASKING)
async def test_idempotency_key_reused_for_another_request_is_refused(api: LiveApi, path: str) -> None:
    body, key = request(), new_id()
    await begin(api, body, key)

    for other in (body | {"input": "Hello."}, body | {"config": {"mode": "CONSERVATIVE"}}, request()):
        status, problem = await sent(api, path, other, key)

        assert (status, problem["code"]) == (422, "idempotency_key_reused")


@pytest.mark.parametrize("path", ASKING)
@pytest.mark.parametrize("key", ["", "x" * 256, "schlüssel", "a\tb"])
async def test_invalid_idempotency_key_is_refused(api: LiveApi, path: str, key: str) -> None:
    status, problem = await sent(api, path, request(), key)

    assert (status, problem["code"]) == (422, "invalid_request")


async def test_idempotency_key_of_255_characters_is_accepted(api: LiveApi) -> None:
    key = "~" + " k" * 127

    assert (await begin(api, body := request(), key))["run_id"] == (await begin(api, body, key))["run_id"]


async def test_run_continues_after_the_waiting_client_disconnects(api: LiveApi) -> None:
    body = request()
    waiting = asyncio.get_running_loop().create_task(sent(api, "/process", body, new_id()))
    runs: list[dict[str, Any]] = []
    while not runs:
        runs = (await get(api, "/v1/runs", thread_id=body["thread_id"]))["runs"]

    waiting.cancel()

    assert (await stream_of(api, runs[0]["run_id"]))[-1].data["status"] == "succeeded"


async def test_cancelling_an_ended_run_changes_nothing(api: LiveApi) -> None:
    events = await api.ask("How full is this disk?")
    run_id = events[0].data["run_id"]

    for _ in range(2):
        async with api.client.post(f"/v1/runs/{run_id}/cancel") as response:
            answer = response.status, await response.json()

        assert answer == (200, {"run_id": run_id, "status": "succeeded"})


async def test_cancelling_a_run_right_after_its_acceptance_ends_it_once(api: LiveApi) -> None:
    body = {"input": "How full is this disk?", "thread_id": new_id()}
    run_id = (await api.post("/v1/runs", json=body, status=202))["run_id"]

    async with api.client.post(f"/v1/runs/{run_id}/cancel") as response:
        status, document = response.status, await response.json()
    async with api.client.get(f"/v1/runs/{run_id}/events") as response:
        text = await response.text()

    assert status == (202 if document["status"] == "running" else 200)
    assert text.count("event: done") == 1
