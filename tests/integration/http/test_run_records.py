"""Records of runs over HTTP, as evaluation programs read them."""

import asyncio
import json
from typing import Any, Final

import pytest

from starling.core.ids import new_id
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.runs.acceptance import RunKey
from tests.integration.http.conftest import LiveApi
from tests.support.stored_runs import blocked_for, events_of, stored_run

pytestmark = pytest.mark.asyncio(loop_scope="module")

LOOP_SECONDS: Final = 0.03  # for so long at most the event loop may be blocked; by a page made at once 0.04 to 0.07
SECRET = "sk-proj-" + "a1B2c3D4e5" * 4


async def records(api: LiveApi, **query: Any) -> dict[str, Any]:
    return await api.get("/v1/records", params=query)


async def test_record_has_what_was_asked_called_judged_and_answered(api: LiveApi) -> None:
    events = await api.ask(f"How full is this disk? My key is {SECRET}.")
    run = events[0].data["run_id"]
    await api.services.runs.feedback.give(RunKey("default", run), 1.0, "", Actor("default", "local", "test"))

    (record,) = (await records(api, run_id=run))["records"]

    done = next(event.data for event in events if event.type == "done")
    (call,) = record["calls"]
    assert (record["schema"], record["status"], record["reply"]) == ("starling.run/1", "succeeded", done["reply"])
    assert record["request"].startswith("How full is this disk?")
    assert SECRET not in str(record)
    assert record["plans"][0]["tasks"][0]["task"] == record["tasks"][0]["task"]
    assert (call["name"], call["status"], call["is_error"]) == ("system_health.disk", "succeeded", False)
    assert call["duration_ms"] > 0
    assert [verdict["status"] for verdict in record["verdicts"]] == ["APPROVED"]
    assert [(score["name"], score["value"]) for score in record["scores"]] == [
        ("verdict", 1.0),
        ("run_status", "succeeded"),
        ("user_feedback", 1.0),
    ]
    assert record["usage"]["model_calls"] == done["usage"]["model_calls"]
    assert "supervisor" in {prompt["name"] for prompt in record["prompts"]}
    assert {step["type"] for step in record["steps"]} >= {"plan", "llm_call", "tool_call", "summary"}
    assert record["pruned"] is False


async def test_page_of_large_records_is_written_without_blocking_the_event_loop(api: LiveApi) -> None:
    for _ in range(20):
        await stored_run(
            api.services.storage.engine, events_of(100, chars=4_000), [{"path": "t1"}] * 400
        )  # 0.5 MB each
    await records(api, limit=1)  # imports, and compiled statements
    stop = asyncio.Event()

    async with asyncio.TaskGroup() as group:
        watcher = group.create_task(blocked_for(stop))
        async with api.client.get("/v1/records", params={"limit": 20}) as response:
            body = await response.read()
        stop.set()

    assert len(json.loads(body)["records"]) > 10
    assert watcher.result() < LOOP_SECONDS


async def test_records_come_in_pages_newest_first(api: LiveApi) -> None:
    thread = new_id()
    asked = [(await api.ask("Hello.", thread))[0].data["run_id"] for _ in range(3)]
    since = (await records(api, run_id=asked[1]))["records"][0]["created_at"]

    first = await records(api, thread_id=thread, limit=2)
    last = await records(api, thread_id=thread, limit=2, before=first["next"])
    later = await records(api, thread_id=thread, since=since)
    failed = await records(api, thread_id=thread, status="failed")

    assert [record["run_id"] for record in (*first["records"], *last["records"])] == asked[::-1]
    assert last["next"] is None
    assert [record["run_id"] for record in later["records"]] == asked[:0:-1]
    assert failed == {"records": [], "next": None}
