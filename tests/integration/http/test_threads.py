"""Threads, branches and states over HTTP, with runs between them."""

import asyncio
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any

import pytest

from starling.core.errors import ConflictError
from starling.core.ids import new_id
from starling.core.principal import DEFAULT_TENANT
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.engine import changing, driver
from starling.infra.postgres.runs.busy_thread_policy import take_turn
from tests.integration.http.conftest import LiveApi

pytestmark = pytest.mark.asyncio(loop_scope="module")

ASKS = "How full is this disk?"


async def call(api: LiveApi, method: str, path: str, body: object = None, status: int = HTTPStatus.OK) -> Any:
    async with api.client.request(method, path, json=body) as response:
        assert response.status == status, await response.text()
        return await response.json()


async def states(api: LiveApi, thread: str, query: str = "") -> list[dict[str, Any]]:
    return (await call(api, "GET", f"/v1/threads/{thread}/states?limit=200&{query}"))["states"]


async def test_line_is_forked_rewound_pruned_and_deleted(api: LiveApi) -> None:
    thread = f"t/{new_id()}"
    await api.ask(ASKS, thread)
    await api.ask(ASKS, thread)
    path, line = f"/v1/threads/{thread}", await states(api, thread)
    assert [one["position"] for one in line] == list(range(1, len(line) + 1))
    kinds = [one["t"] for one in line if one["run_id"] == line[0]["run_id"]]
    assert [kinds[0], *kinds[-2:]] == ["UserMessageState", "AssistantMessageState", "FinishedState"]
    assert kinds.index("AgentCallState") < kinds.index("ToolCallState") < kinds.index("ToolResultState")
    result = next(one for one in line if one["t"] == "ToolResultState")
    assert line[result["parent"] - 1]["t"] in ("ToolCallState", "AgentCallState")
    assert result["data"]["reward"] == 1

    middle = result["position"]
    branch = await call(api, "POST", f"{path}/fork", {"position": middle, "name": "other"}, HTTPStatus.CREATED)
    assert (branch["parent"], branch["fork_position"], branch["tip"]) == ("main", middle, middle)
    await api.ask(ASKS, thread, branch="other")
    forked = await states(api, thread, "branch=other")
    assert forked[:middle] == line[:middle]
    assert len(forked) > middle
    compared = await call(api, "GET", f"{path}/diff?a=main&b=other")
    assert compared["common"] == middle
    assert (len(compared["a"]["runs"]), len(compared["b"]["runs"])) == (2, 1)

    rewound = await call(api, "POST", f"{path}/rewind", {"position": middle - 1})
    assert await states(api, thread) == line[: middle - 1]
    assert [one["data"] for one in await states(api, thread, "branch=other")] == [one["data"] for one in forked]
    hidden = rewound["hidden"]["id"]
    assert [one["data"] for one in await states(api, thread, f"branch={hidden}")] == [one["data"] for one in line]

    removed = await call(api, "POST", f"{path}/prune")
    assert removed["runs"] == 1
    assert [one["data"] for one in await states(api, thread, "branch=other")] == [one["data"] for one in forked]
    await api.ask(ASKS, thread)
    gone = await call(api, "DELETE", path)
    assert gone["runs"] == 3
    await call(api, "GET", path, status=HTTPStatus.NOT_FOUND)


async def imported(api: LiveApi, thread: str, *texts: str, branch: str | None = None) -> None:
    messages = [{"role": "user", "content": text} for text in texts]
    body = {"branch": branch, "messages": messages}
    await call(api, "POST", f"/v1/threads/{thread}/states", body, HTTPStatus.CREATED)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", f"states?after={2**63 - 1}", None, 422),
        ("POST", "fork", {"position": 2**64}, 422),
        ("POST", "fork", {"name": "a\0b"}, 422),
        ("POST", "states", {"states": [{"t": "ToolResultState", "data": {"tool_call_id": "x"}}]}, 422),
        ("POST", "states", {"states": [{"t": "UserMessageState", "data": {"text": ""}, "agent": "a\0"}]}, 422),
    ],
)
async def test_change_that_does_not_fit_is_refused(
    api: LiveApi, method: str, path: str, body: object, status: int
) -> None:
    thread = new_id()
    await imported(api, thread, "one", "two")
    await call(api, method, f"/v1/threads/{thread}/{path}", body, status)


async def test_fork_of_a_run_keeps_its_line_when_its_branch_is_rewound_below_its_own_fork(api: LiveApi) -> None:
    path = f"/v1/threads/{(thread := new_id())}"
    await imported(api, thread, "one", "two")
    await call(api, "POST", f"{path}/fork", {"name": "other"}, HTTPStatus.CREATED)
    run = (await api.ask(ASKS, thread, branch="other"))[0].data["run_id"]
    await call(api, "POST", f"/v1/runs/{run}/fork", {"at": "start"}, HTTPStatus.ACCEPTED)
    await call(api, "POST", f"{path}/rewind", {"branch": "other", "position": 1})
    await imported(api, thread, "three", branch="other")
    forked = next(one for one in (await call(api, "GET", path))["branches"] if one["id"].startswith("fork-"))
    assert [one["data"] for one in (await states(api, thread, f"branch={forked['id']}"))[:2]] == [
        {"text": "one"},
        {"text": "two"},
    ]


async def test_fork_of_a_run_waits_for_a_change_of_its_thread(api: LiveApi) -> None:
    thread, tenant = new_id(), DEFAULT_TENANT
    run = (await api.ask(ASKS, thread))[0].data["run_id"]
    place = {"tenant": tenant, "thread_id": thread}
    async with changing(api.services.storage.engine) as connection:
        await take_turn(await driver(connection), place)
        forked = asyncio.create_task(call(api, "POST", f"/v1/runs/{run}/fork", {"at": "start"}, HTTPStatus.ACCEPTED))
        done, _ = await asyncio.wait([forked], timeout=0.5)
        assert not done
    await forked


async def test_thread_that_was_used_meanwhile_is_not_deleted_as_old(api: LiveApi) -> None:
    await imported(api, thread := new_id(), "one")
    changes, now = api.services.threads.changes, datetime.now(UTC)
    with pytest.raises(ConflictError, match="was used"):
        await changes.delete(DEFAULT_TENANT, thread, Actor.local("test"), since=now - timedelta(minutes=1))
    await changes.delete(DEFAULT_TENANT, thread, Actor.local("test"), since=now + timedelta(minutes=1))


async def test_page_of_long_states_ends_early(api: LiveApi) -> None:
    thread, texts = new_id(), [f"{number} {'x' * 900_000}" for number in range(6)]
    for text in texts:
        await imported(api, thread, text)
    page = await call(api, "GET", f"/v1/threads/{thread}/states?limit=200")
    rest = await call(api, "GET", f"/v1/threads/{thread}/states?limit=200&after={page['next']}")
    assert [one["data"]["text"] for one in (*page["states"], *rest["states"])] == texts
    assert rest["next"] is None
