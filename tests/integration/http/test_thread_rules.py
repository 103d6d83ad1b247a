"""What threads refuse, what goes on beside a run, and what goes with a thread."""

import asyncio
from datetime import timedelta
from http import HTTPStatus
from typing import Any

import pytest

from starling.core.artifacts import ArtifactOrigin
from starling.core.ids import new_id
from starling.core.principal import DEFAULT_TENANT, Scope
from starling.infra.postgres.audit import Actor, latest
from starling.infra.postgres.engine import execute_autocommit
from starling.infra.postgres.retention import PruneSelection
from tests.integration.http.conftest import LiveApi
from tests.integration.http.test_approvals import QUESTION, open_desk, reply
from tests.support.http_client import ApiClient
from tests.support.model_server import ModelServer
from tests.support.platform import ScriptedModel, decision
from tests.support.thread_model import messages

pytestmark = pytest.mark.asyncio(loop_scope="module")

ASKS = "How full is this disk?"
IMAGE: dict[str, Any] = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
FINISHED: dict[str, Any] = {"t": "FinishedState", "data": {}}
SAID: dict[str, Any] = {"t": "UserMessageState", "data": {"text": "Hi."}}
_LEARN = """
INSERT INTO skills (tenant, id, merged_into, task, template, calls, outcome, tools, shape, agent_kind, agent,
    provenance, source_run, words)
VALUES (%(tenant)s, %(id)s, %(into)s, 'x', 'x', '[]', '', '{}', %(shape)s, 'specialist', 'desk', 'run', %(run)s, '')
RETURNING 1"""
_AN_HOUR_AGO = (
    "UPDATE threads SET created_at = created_at - interval '1 hour' WHERE id = ANY(%(threads)s) RETURNING 1",
    "UPDATE runs SET ended_at = ended_at - interval '1 hour' WHERE thread_id = ANY(%(threads)s) RETURNING 1",
    "UPDATE states SET ts = ts - 3600 WHERE thread_id = ANY(%(threads)s) RETURNING 1",
)


async def send(api: ApiClient, thread: str, what: str, status: int = 201, **body: Any) -> Any:
    return await api.post(f"/v1/threads/{thread}/{what}", status, json=body)


async def learn(api: LiveApi, run: str, into: str | None = None) -> str:
    """Store a skill that a run learned, or a further task of one; return its id."""
    key = new_id()
    values = {"tenant": DEFAULT_TENANT, "id": key, "into": into, "shape": key, "run": run}
    await execute_autocommit(api.services.storage.engine, _LEARN, values)
    return key


async def states(api: ApiClient, thread: str, **query: str) -> list[dict[str, Any]]:
    return (await api.get(f"/v1/threads/{thread}/states", params={"limit": "200", **query}))["states"]


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (201, {"messages": messages(("user", "call", "result", "answer", "user"), "x")}),
        (201, {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]}),
        (201, {"states": [SAID, FINISHED, SAID]}),
        (422, {"messages": messages(("user", "result"), "x")}),
        (422, {"messages": [*messages(("user", "call"), "x"), {"role": "tool", "tool_call_id": "d", "content": "x"}]}),
        (422, {"messages": [{"role": "system", "content": "Be brief."}]}),
        (422, {"messages": [{"role": "user", "content": [IMAGE]}]}),
        (422, {}),
        (422, {"messages": messages(("user",), "x"), "states": [SAID]}),
        (422, {"states": [{"t": "ToolResultState", "data": {"tool_call_id": "c", "tool_name": "f", "result": "x"}}]}),
        (422, {"states": [SAID, FINISHED, {"t": "AssistantMessageState", "data": {"content": "x"}}]}),
        (422, {"states": [SAID, FINISHED, FINISHED]}),
        (422, {"states": [{"t": "NoSuchState", "data": {"text": "x"}}]}),
        (422, {"states": [{"t": "UserMessageState", "data": {"no_such_field": 1}}]}),
        (422, {"states": [{**SAID, "v": 99}]}),
    ],
)
async def test_import_takes_what_can_follow_and_nothing_of_anything_else(
    api: LiveApi, status: int, body: dict[str, Any]
) -> None:
    thread = new_id()

    await send(api, thread, "states", status, **body)

    await api.get(f"/v1/threads/{thread}", 200 if status == 201 else 404)


async def test_imported_messages_are_in_the_line_as_they_were_sent(api: LiveApi) -> None:
    thread = new_id()
    await send(api, thread, "states", messages=messages(("user", "call", "result", "answer"), "x"))

    line = await states(api, thread)

    kinds = ["UserMessageState", "AssistantMessageState", "ToolCallState", "ToolResultState", "AssistantMessageState"]
    assert [state["t"] for state in line] == kinds
    assert line[1]["data"]["tool_calls"] == messages(("call",), "x")[0]["tool_calls"]
    assert (line[2]["data"]["id"], line[3]["data"]["tool_call_id"]) == ("c", "c")
    assert [state["reference"] for state in line] == [f"{thread}/main/-/{n}" for n in range(1, 6)]


@pytest.mark.parametrize(
    ("what", "body", "status"),
    [
        ("fork", {"position": 3}, 422),
        ("fork", {"name": "main"}, 409),
        ("fork", {"branch": "none"}, 404),
        ("rewind", {"position": 3}, 422),
        ("rewind", {"position": 0, "branch": "none"}, 404),
        ("checkout", {"branch": "none"}, 404),
        ("states", {"branch": "none", "states": [SAID]}, 404),
        ("rewind", {"position": 0, "branch": "HIDDEN"}, 409),
        ("checkout", {"branch": "HIDDEN"}, 409),
        ("states", {"branch": "HIDDEN", "states": [SAID]}, 409),
        ("fork", {"branch": "HIDDEN"}, 201),
    ],
)
async def test_change_of_a_missing_place_is_refused(api: LiveApi, what: str, body: dict[str, Any], status: int) -> None:
    thread = new_id()
    await send(api, thread, "states", states=[SAID, FINISHED, SAID])
    hidden = (await send(api, thread, "rewind", 200, position=2))["hidden"]["id"]

    await send(api, thread, what, status, **(body | ({"branch": hidden} if body.get("branch") == "HIDDEN" else {})))

    await send(api, new_id(), what, 404, **(body | {"branch": "none"}))


@pytest.mark.parametrize("route", ["/v1/runs", "/v1/agent/run", "/process"])
async def test_run_goes_to_a_branch_that_is_there_and_to_no_other(api: LiveApi, route: str) -> None:
    thread = new_id()
    body = {"input": "hello", "thread_id": thread}
    await api.post(route, 404, json={**body, "branch": "none"})
    await api.get(f"/v1/threads/{thread}", 404)
    await api.ask("hello", thread, branch="main")
    await send(api, thread, "fork", position=1, name="other")
    hidden = (await send(api, thread, "rewind", 200, position=1))["hidden"]["id"]

    await api.ask("hello", thread, branch="other")

    for branch in ("none", hidden):
        await api.post(route, 404, json={**body, "branch": branch})
    known = await api.get(f"/v1/threads/{thread}/branches")
    assert [(branch["tip"] > 1, branch["runs"]) for branch in known["branches"][:2]] == [(False, 1), (True, 1)]


async def test_forks_go_on_beside_a_run_and_changes_of_its_branch_wait(
    database_url: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    script, thread = ScriptedModel(), new_id()
    script.supervisor(QUESTION, decision(reply="On the fork."), decision(reply="Fine."))
    async with (
        ModelServer(script) as model,
        open_desk(database_url, model, tmp_path_factory.mktemp("desk")) as desk,
    ):
        api = ApiClient("", desk.client)
        await send(api, thread, "states", states=[SAID, FINISHED])
        run = await desk.begin(thread=thread)
        forks = [send(api, thread, "fork", position=n % 3) for n in range(20)]
        made = await asyncio.gather(*forks)
        assert len({fork["id"] for fork in made}) == 20
        assert [(fork["tip"], fork["parent"]) for fork in made] == [(n % 3, "main") for n in range(20)]

        known = await api.get(f"/v1/threads/{thread}")
        assert [branch["live_run"] for branch in known["branches"]] == [run, *[None] * 20]
        await send(api, thread, "rewind", 409, position=0)
        await send(api, thread, "states", 409, states=[SAID])
        await api.delete(f"/v1/threads/{thread}", 409)
        live = await states(api, thread)
        assert [(state["t"], state["live"]) for state in live[-3:]] == [
            ("UserMessageState", True), ("AssistantMessageState", True), ("WaitingState", True),
        ]  # fmt: skip
        await send(api, thread, "fork", 422, position=len(live))

        fork = made[2]["id"]
        told = await desk.call("POST", "/v1/runs", {"input": "hello", "thread_id": thread, "branch": fork})
        await desk.reached(told["run_id"], "succeeded")
        await send(api, thread, "rewind", 200, position=1, branch=fork)
        await send(api, thread, "states", states=[SAID], branch=made[3]["id"])

        [asked] = await desk.waiting(run_id=run)
        await desk.call("POST", f"/v1/runs/{run}/resume", [reply(asked, {"answer": "the first"})])
        await desk.reached(run, "succeeded")
        stored = await states(api, thread)
        unlike = {"ts": 0, "live": False}
        assert [state | unlike for state in stored[: len(live)]] == [state | unlike for state in live]
        ends = ["UserResponseState", "AssistantMessageState", "FinishedState"]
        assert [state["t"] for state in stored[len(live) :]] == ends
        await api.delete(f"/v1/threads/{thread}")


@pytest.mark.parametrize("rewound", [False, True], ids=["deleted", "rewound, pruned and deleted"])
async def test_skill_goes_with_the_only_thread_that_it_was_learned_on(api: LiveApi, *, rewound: bool) -> None:
    gone, kept = new_id(), new_id()
    there, elsewhere = [(await api.ask("hello", thread))[0].data["run_id"] for thread in (gone, kept)]
    learned_there, learned_elsewhere, also_elsewhere = [await learn(api, run) for run in (there, elsewhere, there)]
    await learn(api, elsewhere, into=also_elsewhere)
    removed: list[int] = []

    if rewound:
        await send(api, gone, "rewind", 200, position=0)
        removed.append((await send(api, gone, "prune", 200))["skills"])
        await api.get(f"/v1/skills/{learned_there}", 404)
    removed.append((await api.delete(f"/v1/threads/{gone}"))["skills"])

    assert removed == ([1, 0] if rewound else [1])
    await api.get(f"/v1/skills/{learned_there}", 404)
    await api.get(f"/v1/skills/{learned_elsewhere}")
    [further] = (await api.get(f"/v1/skills/{also_elsewhere}"))["examples"]
    assert further["source_run"] == elsewhere


async def test_thread_goes_with_its_runs_and_artifacts_and_leaves_those_of_others(api: LiveApi) -> None:
    kept, gone, away = new_id(), new_id(), await api.key(*Scope, tenant="away")
    runs = {thread: (await api.ask(ASKS, thread))[0].data["run_id"] for thread in (gone, kept)}
    await api.post(f"/v1/threads/{gone}/states", 201, json={"states": [SAID]}, headers=away)
    for run in runs.values():
        for text in ("what both have", f"what {run} has"):
            origin = ArtifactOrigin(DEFAULT_TENANT, run, f"t1.0.{text == 'what both have'}", "poet.recite")
            await api.services.storage.artifacts.put(origin, text.encode(), "text/plain")

    removed = await api.delete(f"/v1/threads/{gone}")

    assert (removed["branches"], removed["runs"], removed["artifacts"]) == (["main"], 1, 1)
    for path in ("", "/events", "/artifacts", "/explanation"):
        await api.get(f"/v1/runs/{runs[gone]}{path}", 404)
    assert len((await api.get(f"/v1/runs/{runs[kept]}/artifacts"))["artifacts"]) == 2
    await api.get(f"/v1/threads/{gone}", headers=away)
    await api.get(f"/v1/threads/{gone}", 404)
    await api.delete(f"/v1/threads/{gone}", 404)


async def test_rewind_prune_and_delete_are_audited(api: LiveApi) -> None:
    thread = new_id()
    await send(api, thread, "states", states=[SAID, FINISHED])
    await send(api, thread, "rewind", 200, position=1)
    await send(api, thread, "prune", 200)
    await api.delete(f"/v1/threads/{thread}")

    entries = await latest(api.services.storage.engine, DEFAULT_TENANT, limit=3)

    changes = [(entry.action, entry.target) for entry in reversed(entries)]
    assert changes == [(f"thread.{action}", thread) for action in ("rewind", "prune", "delete")]


async def test_database_pruning_takes_unused_threads_alone(api: LiveApi) -> None:
    old, used = new_id(), new_id()
    run = (await api.ask("hello", old))[0].data["run_id"]
    await api.ask("hello", used)
    for statement in _AN_HOUR_AGO:
        await execute_autocommit(api.services.storage.engine, statement, {"threads": [old, used]})
    await send(api, used, "states", states=[SAID])

    await api.services.storage.retention.prune(PruneSelection(timedelta(minutes=30), threads=True), Actor.local("cli"))

    await api.get(f"/v1/threads/{old}", HTTPStatus.NOT_FOUND)
    await api.get(f"/v1/runs/{run}", HTTPStatus.NOT_FOUND)
    assert len(await states(api, used)) > 1
