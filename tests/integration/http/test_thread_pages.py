"""Pages of threads and of states, also of those of one agent or kind, and what results are rated with."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from starling.core.ids import new_id
from starling.core.principal import Scope
from tests.integration.http.conftest import LiveApi
from tests.integration.http.test_approvals import open_desk
from tests.support.effect_recorder import AGENT, EffectRecorder
from tests.support.http_client import ApiClient
from tests.support.model_script import Answer
from tests.support.model_server import ModelServer
from tests.support.platform import ScriptedModel, calls, decision, task, verdict

pytestmark = pytest.mark.asyncio(loop_scope="module")

SAID: dict[str, Any] = {"t": "UserMessageState", "data": {"text": "Go on."}}
LONG = "x" * 900_000
RATED = {"ToolResultState": "reward", "AgentResultState": "score"}


def call(name: str) -> dict[str, Any]:
    return {"t": "ToolCallState", "data": {"id": name, "function_name": "f", "arguments": {}}}


def result_of(name: str, **fields: Any) -> dict[str, Any]:
    return {"t": "ToolResultState", "data": {"tool_call_id": name, "tool_name": "f", "result": {}, **fields}}


async def add(api: ApiClient, thread: str, *states: dict[str, Any]) -> None:
    await api.post(f"/v1/threads/{thread}/states", 201, json={"states": list(states)})


async def pages(api: ApiClient, thread: str, **query: str | int) -> AsyncIterator[list[dict[str, Any]]]:
    """Yield the states of each page, read on with `next`."""
    more: int | None = 0
    while more is not None:
        page = await api.get(f"/v1/threads/{thread}/states", params={"limit": 200, **query, "after": more})
        assert page["next"] is None or page["next"] > more
        more = page["next"]
        yield page["states"]


async def ratings(api: ApiClient, thread: str) -> dict[str, float | None]:
    """Return what the last result of each kind is rated with."""
    states = [state async for page in pages(api, thread) for state in page]
    return {one["t"]: one["data"].get(RATED[one["t"]]) for one in states if one["t"] in RATED}


@pytest.mark.parametrize("query", [{"kind": "ToolCallState"}, {"agent": "helper"}])
async def test_page_of_one_kind_or_agent_ends_after_what_was_read_and_the_next_ones_give_the_rest(
    api: LiveApi, query: dict[str, str]
) -> None:
    thread = new_id()
    for name in "ab":
        await add(api, thread, SAID)
        for _ in range(5):
            await add(api, thread, {"t": "UserMessageState", "data": {"text": LONG}})
        await add(api, thread, SAID, {**call(name), "agent": "helper"}, result_of(name))

    read = [page async for page in pages(api, thread, **query)]

    assert [state["data"]["id"] for page in read for state in page] == ["a", "b"]
    assert len(read) > 2
    assert not read[0]


@pytest.mark.parametrize("limit", [1, 2, 200])
@pytest.mark.parametrize(
    ("query", "positions"),
    [
        ({"agent": "helper"}, [2, 3, 5]),
        ({"agent": "supervisor"}, [1, 4]),
        ({"kind": "ToolResultState"}, [3, 5]),
        ({"agent": "helper", "kind": "ToolCallState"}, [2]),
        ({"agent": "nobody"}, []),
        ({}, [1, 2, 3, 4, 5]),
    ],
)
async def test_states_of_one_agent_and_kind_are_listed_alone(
    api: LiveApi, query: dict[str, str], positions: list[int], limit: int
) -> None:
    thread = new_id()
    of_helper = [{**state, "agent": "helper"} for state in (call("a"), result_of("a"), result_of("b"))]
    await add(api, thread, SAID, *of_helper[:2], call("b"), of_helper[2])

    read = [page async for page in pages(api, thread, limit=limit, **query)]

    assert [state["position"] for page in read for state in page] == positions
    assert all(len(page) <= limit for page in read)


@pytest.mark.parametrize("limit", [1, 3, 7, 200])
async def test_pages_of_threads_show_each_once_and_none_of_another_tenant(api: LiveApi, limit: int) -> None:
    names = [f"{limit}/{number}" for number in range(7)]
    headers, others = [await api.key(*Scope, tenant=f"{who}-{limit}") for who in ("ours", "theirs")]
    for name in names:
        for key in (headers, others) if name != names[0] else (headers,):
            await api.post(f"/v1/threads/{name}/states", 201, json={"states": [SAID]}, headers=key)
    await api.post(f"/v1/threads/{names[2]}/fork", 201, json={"name": "other"}, headers=headers)
    await api.post(f"/v1/threads/{names[1]}/states", 201, json={"states": [SAID]}, headers=headers)

    shown: list[dict[str, Any]] = []
    query: dict[str, str | int] = {"limit": limit}
    while page := await api.get("/v1/threads", params=query, headers=headers):
        assert len(page["threads"]) <= limit
        shown += page["threads"]
        if page["next"] is None:
            break
        query["before"] = page["next"]

    assert [thread["id"] for thread in shown] == names[::-1]
    assert [len(thread["branches"]) for thread in shown] == [1, 1, 1, 1, 2, 1, 1]


async def test_pushed_reward_is_kept_and_others_come_from_the_verdict(api: LiveApi) -> None:
    thread, rejected = new_id(), {"result": {"verdict": "REJECTED"}}
    await add(api, thread, SAID, call("a"), call("b"), call("c"))

    await add(api, thread, result_of("a", reward=0.3, **rejected), result_of("b", **rejected), result_of("c"))

    states = [state["data"] async for page in pages(api, thread, kind="ToolResultState") for state in page]
    assert [data.get("reward") for data in states] == [0.3, 0, None]


@asynccontextmanager
async def waiting_run(database_url: str, folder: Path, thread: str) -> AsyncGenerator[tuple[ApiClient, str]]:
    """Yield a run on a thread, one task of which is done, and another one waits for an approval."""
    script = ScriptedModel()
    script.supervisor(decision(task("t1", AGENT), task("t2", AGENT)))
    script.agent("t1", calls(("read_it", {"what": "list"})), Answer("It is read [1]."))
    script.agent("t2", calls(("charge", {"what": "a"})))
    script.reviewer(verdict("APPROVED"))
    servers = {"effects": EffectRecorder(folder / "effects").as_server(approval="unsafe")}
    async with ModelServer(script) as model, open_desk(database_url, model, folder, servers) as desk:
        yield ApiClient("", desk.client), await desk.begin(thread=thread)


async def test_results_of_a_run_that_goes_on_are_rated_and_feedback_replaces_it(
    database_url: str, tmp_path: Path
) -> None:
    thread = new_id()
    async with waiting_run(database_url, tmp_path, thread) as (api, run):
        of_verdict = await ratings(api, thread)
        await api.post(f"/v1/runs/{run}/feedback", json={"score": 0.25})
        of_feedback = await ratings(api, thread)
        await api.post(f"/v1/runs/{run}/cancel")
        stored = await ratings(api, thread)

    assert of_verdict == dict.fromkeys(RATED, 1.0)
    assert of_feedback == stored == dict.fromkeys(RATED, 0.25)


async def test_states_of_a_queued_run_that_is_cancelled_come_before_those_of_the_run_that_goes_on(
    database_url: str, tmp_path: Path
) -> None:
    thread = new_id()
    async with waiting_run(database_url, tmp_path, thread) as (api, run):
        begun = [state async for page in pages(api, thread) for state in page]
        accepted = await api.post("/v1/runs", 202, json={"input": "hello", "thread_id": thread})
        await api.post(f"/v1/runs/{accepted['run_id']}/cancel")
        states = [state async for page in pages(api, thread) for state in page]

    stored, live = states[: -len(begun)], states[-len(begun) :]
    assert {state["run_id"] for state in stored} == {accepted["run_id"]}
    assert {state["run_id"] for state in live} == {run}
    assert [state["data"] for state in live] == [state["data"] for state in begun]
    assert [state["position"] for state in states] == list(range(1, len(states) + 1))
