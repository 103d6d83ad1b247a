"""Interrupts over HTTP: list, answer, refuse; answers by message; restarts."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from pydantic import SecretStr

from starling.app.access.keys import KeySpec
from starling.app.container.database import Database
from starling.app.container.services import open_services
from starling.app.services import Services
from starling.core.principal import HOST_ADMIN, Grant, Scope
from starling.core.settings.schema import ProviderSettings, Settings
from starling.infra.postgres.audit import Actor, latest
from tests.support.effect_recorder import AGENT, EffectRecorder
from tests.support.http_app import served_api
from tests.support.model_script import Answer
from tests.support.model_server import ModelServer
from tests.support.platform import ScriptedModel, calls, decision, task
from tests.support.soak import rounds
from tests.support.sse import Event, read_events
from tests.support.worker_runtime import open_worker_runtime, running_worker

QUESTION = decision(question="Which disk?", options=["the first", "the second"])
type Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Desk:
    """A live API with a worker behind it."""

    client: aiohttp.ClientSession
    services: Services

    async def call(self, method: str, path: str, body: Any = None, status: int = 202, **more: Any) -> Body:
        async with self.client.request(method, path, json=body, **more) as response:
            assert response.status == status, await response.text()
            return await response.json()

    async def begin(self, text: str = "Is the disk fine?", thread: str = "t", **more: Any) -> str:
        """Ask in the background, and wait until the run waits. Return its id."""
        accepted = await self.call("POST", "/v1/runs", {"input": text, "thread_id": thread, **more})
        await self.reached(accepted["run_id"], "waiting")
        return accepted["run_id"]

    async def reached(self, run_id: str, status: str) -> Body:
        """Wait until a run stands so."""
        while True:
            run = await self.call("GET", f"/v1/runs/{run_id}", status=200)
            if run["status"] == status:
                return run
            assert run["ended_at"] is None, run
            await asyncio.sleep(0.02)

    async def waiting(self, **query: str) -> list[Body]:
        return (await self.call("GET", "/v1/approvals", status=200, params=query))["interrupts"]

    async def events(self, run_id: str) -> list[Event]:
        async with self.client.get(f"/v1/runs/{run_id}/events") as response:
            return [event async for event in read_events(response)]

    async def ask(self, text: str, thread: str = "t") -> list[Event]:
        async with self.client.post("/v1/agent/run", json={"input": text, "thread_id": thread}) as response:
            assert response.status == 200, await response.text()
            return [event async for event in read_events(response)]


@asynccontextmanager
async def open_desk(
    database_url: str, model: ModelServer, folder: Path, servers: Mapping[str, Any] | None = None, **limits: Any
) -> AsyncGenerator[Desk]:
    file = folder / "mcp.json"
    file.write_text(json.dumps({"mcpServers": servers or {}}))
    settings = Settings(
        database_url=SecretStr(database_url),
        mcp_config=file,
        model=("scripted:small",),
        providers={"scripted": ProviderSettings(base_url=model.url)},
        limits=limits,  # pyright: ignore[reportArgumentType]
    )
    async with (
        open_services(settings, Database(database_url, database_url)) as services,
        open_worker_runtime(settings, services) as worker_runtime,
        running_worker(worker_runtime.worker),
        served_api(settings, services) as served,
    ):
        yield Desk(served.client, services)


@pytest.fixture
def script() -> ScriptedModel:
    return ScriptedModel()


@pytest.fixture
async def model(script: ScriptedModel) -> AsyncGenerator[ModelServer]:
    async with ModelServer(script) as server:
        yield server


@pytest.fixture
async def desk(database_url: str, model: ModelServer, tmp_path: Path) -> AsyncGenerator[Desk]:
    async with open_desk(database_url, model, tmp_path) as desk:
        yield desk


def reply(interrupt: Mapping[str, Any], payload: Body | None) -> Body:
    state = "cancelled" if payload is None else "resolved"
    return {"interruptId": interrupt["id"], "status": state, "payload": payload or {}}


async def test_run_continues_after_its_listed_question_is_answered(desk: Desk, script: ScriptedModel) -> None:
    script.supervisor(QUESTION, decision(reply="Fine."))
    run_id = await desk.begin()
    [asked] = await desk.waiting(run_id=run_id, kind="clarification")
    assert (asked["run_id"], asked["message"]) == (run_id, "Which disk?")
    assert (await desk.reached(run_id, "waiting"))["interrupts"] == [asked]

    stream = await desk.call("POST", f"/v1/runs/{run_id}/resume", [reply(asked, {"answer": "the first"})])

    assert stream["run_id"] == run_id
    assert stream["interrupts"] == []
    ended = await desk.reached(run_id, "succeeded")
    assert ended["result"]["reply"] == "Fine."
    [entry] = await latest(desk.services.storage.engine, "default", limit=1)
    assert (entry.action, entry.detail["payload"]) == ("interrupt.answer", {"answer": "the first"})


async def test_question_is_answered_after_a_restart_of_the_platform(
    database_url: str, model: ModelServer, script: ScriptedModel, tmp_path: Path
) -> None:
    script.supervisor(QUESTION, decision(reply="Fine."))
    async with open_desk(database_url, model, tmp_path) as before:
        run_id = await before.begin()

    async with open_desk(database_url, model, tmp_path) as after:
        [asked] = await after.waiting()
        await after.call("POST", f"/v1/approvals/{asked['id']}", {"status": "resolved", "payload": {"answer": "b"}})
        await after.reached(run_id, "succeeded")
        events = await after.events(run_id)

    assert [event.type for event in events] == ["run_started", "clarification", "plan", "thinking", "done"]
    assert [event.id for event in events] == [1, 2, 3, 4, 5]
    assert len(model.requests) == 2


async def test_invalid_or_contradicting_answer_is_refused_and_a_repeated_one_accepted(
    desk: Desk, script: ScriptedModel
) -> None:
    script.supervisor(QUESTION, decision(reply="Fine."))
    run_id = await desk.begin()
    [asked] = await desk.waiting()
    path, one = f"/v1/runs/{run_id}/resume", f"/v1/approvals/{asked['id']}"
    nobodys = "01a1f8ac-cbf4-7cdd-97b7-5ad5f772744e"

    wrong = await desk.call("POST", path, [reply(asked, {"answer": 7})], status=422)
    assert "[0].payload.answer" in wrong["detail"]
    await desk.call("POST", path, [reply(asked, {"answer": "a", "more": 1})], status=422)
    await desk.call("POST", path, [reply(asked, {"answer": "a"})] * 2, status=422)
    await desk.call("POST", path, [], status=422)
    await desk.call("POST", one, {"status": "resolved", "payload": {}}, status=422)
    await desk.call("POST", path, [reply({"id": nobodys}, {"answer": "a"})], status=404)
    await desk.call("POST", f"/v1/runs/{nobodys}/resume", [reply(asked, {"answer": "a"})], status=404)
    await desk.call("POST", f"/v1/approvals/{nobodys}", {"status": "cancelled"}, status=404)
    assert await desk.waiting() == [asked]
    await desk.call("POST", path, [reply(asked, {"answer": "a"})])
    await desk.reached(run_id, "succeeded")
    await desk.call("POST", path, [reply(asked, {"answer": "a"})])
    await desk.call("POST", one, {"status": "resolved", "payload": {"answer": "a"}})
    refused = await desk.call("POST", one, {"status": "resolved", "payload": {"answer": "b"}}, status=409)
    assert refused["code"] == "conflict"
    await desk.call("POST", path, [reply(asked, None)], status=409)


async def test_open_interrupts_are_listed_in_pages(desk: Desk, script: ScriptedModel) -> None:
    script.supervisor(QUESTION)
    for number in range(5):
        await desk.begin(thread=f"t{number}")
    whole = await desk.call("GET", "/v1/approvals", status=200)

    pages: list[Body] = []
    while not pages or pages[-1]["next"]:
        query = {"limit": "2"} | ({"after": pages[-1]["next"]} if pages else {})
        pages.append(await desk.call("GET", "/v1/approvals", status=200, params=query))

    assert [len(page["interrupts"]) for page in pages] == [2, 2, 1]
    assert [item for page in pages for item in page["interrupts"]] == whole["interrupts"]
    assert whole["next"] is None
    for wrong in ({"after": "yesterday"}, {"limit": "0"}, {"limit": "501"}):
        await desk.call("GET", "/v1/approvals", status=422, params=wrong)


async def test_question_of_another_tenant_is_neither_listed_nor_answered(desk: Desk, script: ScriptedModel) -> None:
    script.supervisor(QUESTION, decision(reply="Fine."))
    run_id = await desk.begin()
    [asked] = await desk.waiting()
    _, key = await desk.services.storage.keys.create(
        HOST_ADMIN, KeySpec("test", "other", frozenset(Scope)), Actor.local("test")
    )
    headers = {"Authorization": f"Bearer {key}"}

    seen = await desk.call("GET", "/v1/approvals", status=200, headers=headers)
    assert seen["interrupts"] == []
    for path, body in (
        (f"/v1/runs/{run_id}/resume", [reply(asked, {"answer": "a"})]),
        (f"/v1/approvals/{asked['id']}", {"status": "resolved", "payload": {"answer": "a"}}),
    ):
        await desk.call("POST", path, body, status=404, headers=headers)

    assert await desk.waiting() == [asked]


async def limited(desk: Desk, grant: Grant) -> dict[str, str]:
    """Return the headers of a key that reaches only this."""
    _, key = await desk.services.storage.keys.create(
        HOST_ADMIN, KeySpec("test", "default", frozenset(Scope), grant=grant), Actor.local("test")
    )
    return {"Authorization": f"Bearer {key}"}


async def test_approval_of_a_call_outside_the_grant_is_refused(
    database_url: str, model: ModelServer, script: ScriptedModel, tmp_path: Path
) -> None:
    effects = EffectRecorder(tmp_path / "effects")
    script.run(decision(task("t1", AGENT)), t1=calls(("charge", {"what": "a"})), qa=Answer("Charged [1]."))
    servers = {"effects": effects.as_server(approval="unsafe")}
    async with open_desk(database_url, model, tmp_path, servers) as desk:
        run_id = await desk.begin("Charge it.")
        [asked] = await desk.waiting()
        narrow = await limited(desk, Grant(tools=frozenset({"effects.put"})))
        wide = await limited(desk, Grant(tools=frozenset({"effects.charge"})))
        one = f"/v1/approvals/{asked['id']}", {"status": "resolved", "payload": {"approved": True}}
        several = f"/v1/runs/{run_id}/resume", [reply(asked, {"approved": True})]

        for path, body in (one, several):
            refused = await desk.call("POST", path, body, status=403, headers=narrow)
            assert "effects.charge" in refused["detail"]
        assert (await desk.waiting(), effects.done()) == ([asked], [])
        await desk.call("POST", *several, headers=wide)
        await desk.reached(run_id, "succeeded")

    assert effects.done() == ["charge a"]


async def test_answer_with_a_narrower_grant_than_the_run_is_refused(desk: Desk, script: ScriptedModel) -> None:
    script.supervisor(QUESTION, decision(reply="Fine."))
    run_id = await desk.begin()
    [asked] = await desk.waiting()
    narrow = await limited(desk, Grant(servers=frozenset({"time"})))

    path, body = f"/v1/runs/{run_id}/resume", [reply(asked, {"answer": "a"})]
    await desk.call("POST", path, body, status=403, headers=narrow)
    message = {"input": "the first", "thread_id": "t"}
    next_one = await desk.call("POST", "/v1/runs", message, headers=narrow)

    assert next_one["run_id"] != run_id
    assert await desk.waiting() == [asked]


async def test_budget_of_a_run_is_not_raised_with_a_narrower_grant_than_the_run(
    desk: Desk, script: ScriptedModel
) -> None:
    script.supervisor(decision(task("t1", "generalist")))
    request = {"input": "Is the disk fine?", "thread_id": "t", "config": {"limits": {"tokens": 20}}}
    run_id = (await desk.call("POST", "/v1/runs", request))["run_id"]
    await desk.reached(run_id, "waiting")
    [asked] = await desk.waiting(kind="budget")
    narrow = await limited(desk, Grant(servers=frozenset({"time"})))
    one = f"/v1/approvals/{asked['id']}", {"status": "resolved", "payload": {"tokens": 1_000_000}}
    several = f"/v1/runs/{run_id}/resume", [reply(asked, {"tokens": 1_000_000})]

    refused = [await desk.call("POST", path, body, status=403, headers=narrow) for path, body in (one, several)]

    assert [answer["code"] for answer in refused] == ["forbidden"] * 2
    assert await desk.waiting() == [asked]


async def test_run_queued_behind_a_waiting_run_names_it(desk: Desk, script: ScriptedModel) -> None:
    script.supervisor(QUESTION, decision(reply="Fine."))
    run_id = await desk.begin()
    narrow = await limited(desk, Grant(servers=frozenset({"time"})))
    message = {"input": "And now?", "thread_id": "t"}
    later = [(await desk.call("POST", "/v1/runs", message, headers=narrow))["run_id"] for _ in range(2)]

    shown = [await desk.call("GET", f"/v1/runs/{run}", status=200) for run in (run_id, *later)]
    await desk.call("POST", f"/v1/runs/{run_id}/cancel", status=200)
    ended = [await desk.reached(run, "succeeded") for run in later]

    ahead = {"run_id": run_id, "status": "waiting"}
    assert [run["behind"] for run in shown] == [None, ahead, ahead]
    assert [run["behind"] for run in ended] == [None, None]


@rounds(5, soak=50)
async def test_first_of_concurrent_different_answers_is_accepted(
    desk: Desk, script: ScriptedModel, rounds: int
) -> None:
    script.supervisor(*[QUESTION, decision(reply="Fine.")] * rounds)

    for number in range(rounds):
        run_id = await desk.begin(thread=f"t-{number}")
        [asked] = await desk.waiting(run_id=run_id)
        path = f"/v1/runs/{run_id}/resume"
        said = [[reply(asked, {"answer": str(which)})] for which in range(4)]
        answers = [desk.client.post(path, json=body) for body in said]
        statuses = sorted([response.status for response in await asyncio.gather(*answers)])
        await desk.reached(run_id, "succeeded")

        assert statuses == [202, 409, 409, 409]


@rounds(5, soak=50)
@pytest.mark.parametrize("way", ["resume", "message"])
async def test_answer_concurrent_with_the_suspension_of_the_run_is_applied(
    desk: Desk, script: ScriptedModel, way: str, rounds: int
) -> None:
    script.supervisor(*[QUESTION, decision(reply="Fine.")] * rounds)

    for number in range(rounds):
        body = {"input": "Is the disk fine?", "thread_id": f"t-{number}"}
        async with desk.client.post("/v1/agent/run", json=body) as response:
            run_id, events = response.headers["X-Run-Id"], read_events(response)
            while (event := await anext(events)).type != "clarification":
                pass
            if way == "resume":
                await desk.call("POST", f"/v1/runs/{run_id}/resume", [reply(event.data, {"answer": "a"})])
            else:
                stream = await desk.call("POST", "/v1/runs", body | {"input": "the first"})
                assert stream["run_id"] == run_id
            rest = [event.type async for event in events]

        assert rest == ["plan", "thinking", "done"]


async def test_message_on_a_waiting_thread_answers_the_question_without_a_new_run(
    desk: Desk, script: ScriptedModel
) -> None:
    script.supervisor(QUESTION, decision(reply="Fine."))
    run_id = await desk.begin()

    events = await desk.ask("the second")

    assert [(event.id, event.type) for event in events] == [(3, "plan"), (4, "thinking"), (5, "done")]
    page = await desk.call("GET", "/v1/runs", status=200)
    assert [run["run_id"] for run in page["runs"]] == [run_id]


async def test_second_of_two_concurrent_messages_on_a_waiting_thread_is_a_new_run(
    desk: Desk, script: ScriptedModel
) -> None:
    script.supervisor(QUESTION, decision(reply="Fine."))
    run_id = await desk.begin()

    streams = await asyncio.gather(desk.ask("the first"), desk.ask("the second"))

    assert all(events[-1].data["status"] == "succeeded" for events in streams)
    page = await desk.call("GET", "/v1/runs", status=200)
    assert len(page["runs"]) == 2
    assert run_id in [run["run_id"] for run in page["runs"]]


async def test_answer_repeated_under_its_idempotency_key_is_accepted_once(desk: Desk, script: ScriptedModel) -> None:
    script.supervisor(QUESTION, decision(reply="Fine."))
    run_id = await desk.begin()
    body, headers = {"input": "the first", "thread_id": "t"}, {"Idempotency-Key": "k"}

    first = await desk.call("POST", "/v1/runs", body, headers=headers)
    await desk.reached(run_id, "succeeded")
    again = await desk.call("POST", "/v1/runs", body, headers=headers)

    assert first["run_id"] == again["run_id"] == run_id


async def test_message_with_policy_reject_still_answers_the_question(desk: Desk, script: ScriptedModel) -> None:
    script.supervisor(QUESTION, decision(reply="Fine."))
    run_id = await desk.begin()
    body = {"input": "the first", "thread_id": "t", "multitask_strategy": "reject"}

    answered = await desk.call("POST", "/v1/runs", body)

    assert answered["run_id"] == run_id
    await desk.reached(run_id, "succeeded")


async def test_process_request_returns_status_waiting_when_the_run_asks(desk: Desk, script: ScriptedModel) -> None:
    script.supervisor(QUESTION, decision(reply="Fine."))

    stream = await desk.call("POST", "/process", {"message": "Is the disk fine?", "session_id": "t"})
    [asked] = stream["interrupts"]
    whole = await desk.call("POST", "/process", {"message": "the first", "session_id": "t"}, status=200)

    assert (stream["status"], asked["message"]) == ("waiting", "Which disk?")
    assert (whole["run_id"], whole["reply"]) == (stream["run_id"], "Fine.")
