"""Requests over HTTP: streams, whole results, several turns."""

import asyncio

import pytest

from starling.core.events.stream import ANY_EVENT
from tests.integration.http.conftest import LiveApi
from tests.support.sse import read_events

pytestmark = pytest.mark.asyncio(loop_scope="module")

QUESTION = "How full is this disk, and what is the load of this machine?"


async def test_stream_reports_the_whole_run_in_the_published_schemas(api: LiveApi) -> None:
    events = await api.ask(QUESTION, correlation_id="c-1")

    assert [event.id for event in events] == list(range(1, len(events) + 1))
    assert all(ANY_EVENT.validate_python(event.data).type == event.type for event in events)
    types = [event.type for event in events]
    assert types[:3] == ["run_started", "plan", "route"]
    assert types[-1] == "done"
    assert events[0].data["correlation_id"] == "c-1"
    assert {"task_start", "tool_start", "tool_result", "reflection", "task_result", "thinking"} <= set(types)
    assert [event.data["status"] for event in events if event.type == "reflection"] == ["APPROVED", "APPROVED"]
    assert events[-1].data["status"] == "succeeded"
    assert "[1]" in events[-1].data["reply"]


async def test_process_returns_the_whole_result_and_accepts_the_alternative_field_names(api: LiveApi) -> None:
    body = {"message": QUESTION, "session_id": "s-1"}

    async with api.client.post("/process", json=body) as response:
        result = await response.json()

    assert response.status == 200
    assert result["status"] == "succeeded"
    assert result["thread_id"] == "s-1"
    assert len(result["trace_id"]) == 32
    assert {step["type"] for step in result["steps"]} >= {"llm_call", "tool_call", "plan", "summary"}
    assert [citation["tools"] for citation in result["citations"]] == [["system_health.disk"], ["system_health.load"]]
    assert result["usage"]["model_calls"] == 6
    tasks = (await api.get(f"/v1/runs/{result['run_id']}?include=tasks,calls"))["tasks"]
    attempts = [attempt for task in tasks for attempt in task["attempts"]]
    results = {call["id"]: call["result"] for attempt in attempts for call in attempt["calls"]}
    excerpts = [excerpt for citation in result["citations"] for excerpt in citation["excerpts"]]
    assert excerpts
    assert all(results[one["call_id"]][one["start"] : one["end"]] == one["text"] for one in excerpts)


async def test_concurrent_requests_on_one_thread_are_answered_in_order(api: LiveApi) -> None:
    first, second = await asyncio.gather(api.ask(QUESTION, "same"), api.ask("How much memory is free?", "same"))

    assert first[-1].data["status"] == second[-1].data["status"] == "succeeded"
    assert (await api.post("/process", json={"input": "hello", "thread_id": "same"}))["status"] == "succeeded"


async def test_stream_continues_after_the_given_last_event_id(api: LiveApi) -> None:
    whole = await api.ask(QUESTION)
    url = f"/v1/runs/{whole[0].data['run_id']}/events"

    async with api.client.get(url, headers={"Last-Event-ID": "4"}) as response:
        rest = [event async for event in read_events(response)]

    assert rest == whole[4:]


async def test_invalid_or_too_large_last_event_id_is_handled(api: LiveApi) -> None:
    whole = await api.ask("hello")
    url = f"/v1/runs/{whole[0].data['run_id']}/events"

    end = str(len(whole))
    for last, expected in (
        *((text, whole) for text in ("", "x", "-1", "1.5", "٣", "0x2", "0")),
        *((text, []) for text in (end, f"{'0' * 60}{end}", str(2**63), "9" * 31, "9" * 5_000)),
    ):
        async with api.client.get(url, headers={"Last-Event-ID": last}) as response:
            assert [event async for event in read_events(response)] == expected


@pytest.mark.parametrize(
    ("accept", "kind", "words"),
    [
        ("text/html,*/*", "text/html", "This platform is <b>ready</b>"),
        ("*/*", "application/json", '"state":"ready"'),
    ],
)
async def test_start_page_names_state_and_documentation(api: LiveApi, accept: str, kind: str, words: str) -> None:
    async with api.client.get("/", headers={"Accept": accept}) as response:
        text = await response.text()

    assert response.status == 200
    assert response.content_type == kind
    assert words in text
    assert "/docs" in text
    assert "epoch" not in text


async def test_health_route_answers(api: LiveApi) -> None:
    assert await api.get("/health") == {"status": "ok"}
