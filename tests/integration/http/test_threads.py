"""Threads, branches and states over HTTP, with runs between them."""

from http import HTTPStatus
from typing import Any

import pytest

from starling.core.ids import new_id
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
