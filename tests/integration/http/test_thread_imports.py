"""What is imported to a thread: calls and their results one by one, keys, waits, and names of threads."""

import json
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import pytest
from yarl import URL

from starling.core.conversation.states import ToolResultState, WaitingState
from starling.core.conversation.turn import PlacedState
from starling.core.ids import new_id
from starling.core.principal import DEFAULT_TENANT
from starling.infra.postgres.runs.conversations import read_line, reader_of
from tests.integration.http.conftest import LiveApi

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY = "sk-proj-" + "a1B2c3D4e5" * 4
FUNCTION = {"name": "look", "arguments": '{"at": "disk"}'}
ASKED = {"id": "a", "type": "function", "function": FUNCTION}
CALL_A: dict[str, Any] = {"t": "ToolCallState", "data": {"id": "a", "function_name": "f", "arguments": {}}}
CALL_B: dict[str, Any] = {"t": "ToolCallState", "data": {"id": "b", "function_name": "f", "arguments": {}}}
SAID: dict[str, Any] = {"t": "UserMessageState", "data": {"text": "Go on."}}
NAMES = ["m/states", "a/b/rewind", ".", "..", "a/../b", "./a", "a/.."]
ROUTES = {"/process": "message", "/v1/runs": "input", "/v1/agent/run": "input"} | dict.fromkeys(
    ("/v1/teams", "/v1/teams/poets/versions"), "goal"
)


async def add(api: LiveApi, thread: str, status: int = 201, **body: Any) -> Any:
    return await api.post(f"/v1/threads/{thread}/states", status, json=body)


async def line(api: LiveApi, thread: str, **query: str) -> list[tuple[str, Mapping[str, Any]]]:
    page = await api.get(f"/v1/threads/{thread}/states", params={"limit": "200", **query})
    return [(state["t"], state["data"]) for state in page["states"]]


def result_of(call: str, reward: float | None = None) -> dict[str, Any]:
    return {"t": "ToolResultState", "data": {"tool_call_id": call, "tool_name": "f", "result": {}, "reward": reward}}


def waiting(kind: str, call: str, seconds: float) -> dict[str, Any]:
    return {"t": "WaitingState", "data": {"kind": kind, "deadline": time.time() + seconds, "correlation_id": call}}


def message(**fields: Any) -> dict[str, Any]:
    """A message of the assistant as OpenAI's SDK dumps it: fields without a value are null."""
    empty = dict.fromkeys(("content", "refusal", "annotations", "audio", "function_call", "tool_calls"))
    return {"role": "assistant", **empty, **fields}


@pytest.mark.parametrize("results", ["ab", "ba"])
async def test_results_of_parallel_calls_are_taken_in_any_order_one_request_each(api: LiveApi, results: str) -> None:
    thread = new_id()
    pushed = [SAID, CALL_A, CALL_B, *map(result_of, results)]

    for state in pushed:
        await add(api, thread, states=[state])

    assert [kind for kind, _ in await line(api, thread)] == [state["t"] for state in pushed]


async def test_result_is_taken_once_where_its_call_came_in_an_earlier_request(api: LiveApi) -> None:
    thread = new_id()
    result = {"role": "tool", "tool_call_id": "a", "content": "half full"}
    await add(api, thread, messages=[message(tool_calls=[ASKED])])

    await add(api, thread, messages=[result])

    assert (await line(api, thread))[-1][0] == "ToolResultState"
    await add(api, thread, 422, messages=[result])
    await add(api, thread, 422, messages=[result | {"tool_call_id": "b"}])


@pytest.mark.parametrize(
    ("call", "place"),
    [
        ({"type": "function", "function": FUNCTION}, "tool_calls.0.id"),
        ({"id": "a", "function": FUNCTION}, "tool_calls.0.type"),
        ({"id": "a", "type": "function"}, "tool_calls.0.function"),
        ({"id": "a", "type": "function", "function": {"name": "f"}}, "tool_calls.0.function.arguments"),
        ({"id": 1, "type": "function", "function": FUNCTION}, "tool_calls.0.id"),
        ({"id": "a", "type": "other", "function": FUNCTION}, "tool_calls.0.type"),
    ],
)
async def test_state_with_an_incomplete_call_is_refused_with_the_place(api: LiveApi, call: Any, place: str) -> None:
    thread, complete = new_id(), {"content": "", "tool_calls": [ASKED]}
    wrong = {"content": "", "tool_calls": [call]}

    problem = await add(api, thread, 422, states=[{"t": "AssistantMessageState", "data": wrong}])

    assert f"{place}: " in problem["detail"]
    await add(api, thread, states=[{"t": "AssistantMessageState", "data": complete}])


async def test_messages_are_taken_as_the_sdk_dumps_them(api: LiveApi) -> None:
    thread = new_id()
    without_arguments = {"id": "b", "type": "function", "function": {"name": "now", "arguments": ""}}

    await add(api, thread, messages=[message(content="Hello."), message(tool_calls=[without_arguments])])

    assert await line(api, thread) == [
        ("AssistantMessageState", {"content": "Hello."}),
        (
            "AssistantMessageState",
            {"content": "", "tool_calls": [{**without_arguments, "function": {"name": "now", "arguments": "{}"}}]},
        ),
        ("ToolCallState", {"id": "b", "function_name": "now", "arguments": {}}),
    ]


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"role": "user", "content": f"My key is {KEY}."}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": KEY}]}]},
        {"messages": [message(tool_calls=[ASKED | {"function": {"name": "f", "arguments": f'{{"key": "{KEY}"}}'}}])]},
        {"messages": [message(tool_calls=[ASKED]), {"role": "tool", "tool_call_id": "a", "content": f"It is {KEY}"}]},
        {"states": [{"t": "UserMessageState", "data": {"text": "Hi.", "meta": KEY}}]},
        {"states": [SAID, {"t": "ToolCallState", "data": {**CALL_A["data"], "arguments": {"deep": [{"key": KEY}]}}}]},
        {"states": [SAID, CALL_A, {"t": "ToolResultState", "data": result_of("a")["data"] | {"result": {"x": KEY}}}]},
    ],
)
async def test_keys_are_stored_masked(api: LiveApi, body: dict[str, Any]) -> None:
    thread = new_id()

    await add(api, thread, **body)

    [row] = await read_line(reader_of(api.services.storage.engine, DEFAULT_TENANT), thread, "main", limit=10)
    stored = repr(row.states())
    assert KEY not in stored
    assert "***" in stored


@pytest.mark.parametrize(
    ("kind", "read"), [("tool", "ToolResultState"), ("agent", "AgentResultState"), ("user_input", "AgentResultState")]
)
async def test_wait_past_its_deadline_is_read_as_a_result_before_and_after_the_next_message(
    api: LiveApi, kind: str, read: str
) -> None:
    thread = new_id()
    await add(api, thread, states=[SAID, CALL_A])
    await add(api, thread, states=[waiting(kind, "a", seconds=-1)])
    place = "tool_call_id" if kind == "tool" else "correlation_id"

    at_the_end = await line(api, thread)
    await add(api, thread, states=[SAID])

    (_, data), after = at_the_end[-1], await line(api, thread)
    assert [one for one, _ in at_the_end] == ["UserMessageState", "ToolCallState", read]
    assert (data[place], data["result"]["status"]) == ("a", "expired")
    assert after == [*at_the_end, ("UserMessageState", SAID["data"])]


async def test_wait_stays_before_its_deadline_and_takes_its_result_but_no_message(api: LiveApi) -> None:
    thread = new_id()
    await add(api, thread, states=[SAID, CALL_A])
    await add(api, thread, states=[waiting("tool", "a", seconds=600)])

    await add(api, thread, 422, states=[SAID])
    await add(api, thread, states=[result_of("a")])

    kinds = [kind for kind, _ in await line(api, thread)]
    assert kinds == ["UserMessageState", "ToolCallState", "WaitingState", "ToolResultState"]


async def test_result_that_comes_after_the_deadline_is_refused(api: LiveApi) -> None:
    thread = new_id()
    await add(api, thread, states=[SAID, CALL_A])
    await add(api, thread, states=[waiting("tool", "a", seconds=-1)])

    await add(api, thread, 422, states=[result_of("a")])
    await add(api, thread, states=[SAID])

    await add(api, thread, 422, states=[result_of("a")])


async def test_wait_of_each_branch_has_its_own_end(api: LiveApi) -> None:
    thread = new_id()
    await add(api, thread, states=[SAID, CALL_A, waiting("tool", "a", seconds=-1), result_of("a")])
    await api.post(f"/v1/threads/{thread}/fork", 201, json={"position": 3, "name": "late"})

    await add(api, thread, branch="late", states=[SAID])

    kinds = {name: [kind for kind, _ in await line(api, thread, branch=name)] for name in ("main", "late")}
    begin = ["UserMessageState", "ToolCallState"]
    assert kinds["main"] == [*begin, "WaitingState", "ToolResultState"]  # imported together, as it was elsewhere
    assert kinds["late"] == [*begin, "ToolResultState", "UserMessageState"]


@pytest.mark.parametrize("rows_before", [0, 18])  # rows are read by twenties: the wait is in the last one, too
async def test_wait_that_was_answered_in_time_stays_one_after_its_deadline(api: LiveApi, rows_before: int) -> None:
    thread, now = new_id(), time.time()
    for _ in range(rows_before):
        await add(api, thread, states=[SAID])
    wait = WaitingState(kind="tool", deadline=now - 100, correlation_id="a")
    answer = ToolResultState(tool_call_id="a", tool_name="f", result={})
    await add(api, thread, states=[SAID, CALL_A])

    for state, seconds_ago in ((wait, 300), (answer, 200)):
        placed = PlacedState(state, now - seconds_ago)
        await api.services.threads.changes.append(DEFAULT_TENANT, thread, None, [placed])

    assert [kind for kind, _ in await line(api, thread)][-2:] == ["WaitingState", "ToolResultState"]


@pytest.mark.parametrize("route", ROUTES)
async def test_run_on_a_thread_whose_name_stands_for_another_address_is_refused(api: LiveApi, route: str) -> None:
    for name in NAMES:
        problem = await api.post(route, 422, json={ROUTES[route]: "hello", "thread_id": name})

        assert [error["where"] for error in problem["errors"]] == ["body.thread_id"], name


@pytest.mark.parametrize("name", NAMES)
async def test_import_to_a_thread_whose_name_stands_for_another_address_is_refused(api: LiveApi, name: str) -> None:
    dots = quote(name, safe="").replace(".", "%2E")  # as they are, a client takes them for steps in the path
    address = URL(f"{api.url}/v1/threads/{dots}/states", encoded=True)
    async with api.client.post(address, json={"states": [SAID]}) as response:
        problem = json.loads(await response.text())

    assert response.status == 422
    assert [error["where"] for error in problem["errors"]] == ["path.thread_id"]


@pytest.mark.parametrize("name", ["states", "a/b", "fork/it", "...", "v1.2", "a/.b"])
async def test_thread_is_found_by_any_other_name(api: LiveApi, name: str) -> None:
    await add(api, name, states=[SAID])
    accepted = await api.post("/v1/runs", 202, json={"input": "hello", "thread_id": name})

    assert (await api.get(f"/v1/threads/{name}"))["id"] == name
    assert (await api.get(f"/v1/runs/{accepted['run_id']}"))["thread_id"] == name
