"""A worker is killed around the activation of a built team: another one ends the build, and works with the team."""

import asyncio
import json
import signal
from collections.abc import AsyncGenerator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from psycopg import AsyncConnection
from pydantic import SecretStr

from starling.app.container.database import Database
from starling.app.container.services import open_services
from starling.app.http.authentication import open_access_control
from starling.app.http.listener import bind
from starling.app.http.uvicorn_server import serving
from starling.core.settings.schema import Settings
from starling.infra.postgres.tool_definitions import LOCK_REGISTRY
from tests.support.command_line import Service, new_workspace
from tests.support.effect_recorder import EffectRecorder
from tests.support.http_app import make_app
from tests.support.local_access import AS_ADMIN, TOKEN
from tests.support.model_script import Answer, Rule, Script, When
from tests.support.model_server import ModelServer
from tests.support.platform import calls, decision, task, verdict
from tests.support.sse import Event, read_events

GOAL = {"goal": "Build a team that puts things.", "name": "putters"}
DESIGN = {
    "name": "putters",
    "purpose": "Puts things.",
    "members": [{"name": "putter", "role": "puts", "goal": "Put.", "server": "effects", "tools": ["put"]}],
    "examples": [{"request": f"Put {thing}.", "must_call": ["effects.put"]} for thing in ("a chair", "a table")],
}
SCRIPT = (
    Rule(Answer(json.dumps(DESIGN), hold="design"), When(schema="designer")),
    Rule(decision(task("t1", "putter")), When(schema="supervisor_decision", contains='<team name="putters"')),
    Rule(decision(task("t1", "putters")), When(schema="supervisor_decision")),
    Rule(verdict("APPROVED"), When(schema="verdict")),
    Rule(Answer("It was put."), When(tool="put", last_contains="put a: fine")),
    Rule(Answer("It was put."), When(tool="put", last_contains="[simulated")),
    Rule(calls(("put", {"what": "a"})), When(tool="put")),
    Rule(Answer("It is put [1].")),
)
HOLDER = "SELECT split_part(worker, ':', 2)::int FROM runs WHERE id = %s"
BLOCKED = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'advisory'"
END_BLOCKED = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE NOT granted"
STORED = """
SELECT name || '@' || version || ' ' || state ||
    CASE WHEN EXISTS (SELECT FROM epochs WHERE active AND manifest -> 'teams' ->> ('default/' || name) = star_hash)
        THEN ' in the epoch' ELSE '' END
FROM workflows"""
AUDITED = "SELECT action FROM audit WHERE action LIKE 'team.%%' ORDER BY id"


@dataclass(frozen=True)
class Town:
    """An API, two workers, and the database of all."""

    client: aiohttp.ClientSession
    workers: tuple[Service, Service]
    address: str
    effects: EffectRecorder
    model: ModelServer

    async def send(self, path: str, body: Any, key: str = "") -> dict[str, Any]:
        headers = {"Idempotency-Key": key} if key else None
        async with self.client.post(path, json=body, headers=headers) as response:
            assert response.status == 202, await response.text()
            return await response.json()

    async def events(self, run_id: str, until: str = "done") -> list[Event]:
        """Return the events of a run from its start to the first one of a type."""
        events: list[Event] = []
        async with self.client.get(f"/v1/runs/{run_id}/events") as response:
            async for event in read_events(response):
                events.append(event)
                if event.type == until:
                    return events
        raise AssertionError(f"the stream ended without {until}")

    async def values(self, query: str, *parameters: str) -> list[Any]:
        async with await AsyncConnection.connect(self.address, autocommit=True) as connection:
            found = await connection.execute(query.encode(), parameters)
            return [value for (value,) in await found.fetchall()]

    async def until(self, query: str, *expected: Any) -> None:
        """Return once a query has these values."""
        async with asyncio.timeout(60):
            while await self.values(query) != [*expected]:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.02)

    async def kill_holder(self, pid: int) -> None:
        (holder,) = [worker for worker in self.workers if worker.process.pid == pid]
        holder.process.send_signal(signal.SIGKILL)
        await asyncio.to_thread(holder.process.wait, 60)


@pytest.fixture
async def town(database_url: str, tmp_path: Path) -> AsyncGenerator[Town]:
    effects = EffectRecorder(tmp_path / "effects")
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"effects": effects.as_server()}}))
    settings = Settings(database_url=SecretStr(database_url))
    async with ModelServer(Script(*SCRIPT)) as model:
        variables = {
            "DATABASE_URL": database_url,
            "STARLING_MCP_CONFIG": str(config),
            "STARLING_MODEL": "openai:scripted",
            "OPENAI_BASE_URL": model.url,
            "OPENAI_API_KEY": "none",
            "STARLING_LIMITS": json.dumps({"lease_seconds": 2}),
        }
        with new_workspace(**variables) as workspace, ExitStack() as stack:
            begun = [stack.enter_context(workspace.started("worker", "--json")) for _ in range(2)]
            first, second = [await asyncio.to_thread(Service.ready, process) for process in begun]
            async with (
                open_services(settings, Database(database_url, database_url)) as services,
                open_access_control(settings, services.storage.keys, TOKEN) as access,
                serving(make_app(services, "test", access), bind("127.0.0.1", 0)) as url,
                aiohttp.ClientSession(url, headers=AS_ADMIN) as client,
            ):
                yield Town(client, (first, second), database_url, effects, model)
            for process in begun:
                process.kill()


async def killed(town: Town, run_id: str, interrupt: str, moment: str) -> list[str]:
    """Have the activation approved, and the worker killed at a moment; return the versions that are stored then.

    The lock of the registry keeps an activation from beginning, one on the row of its run keeps its event from being
    written after it.
    """
    approval = {"status": "resolved", "payload": {"approved": True}}
    async with (
        await AsyncConnection.connect(town.address) as registry,
        await AsyncConnection.connect(town.address) as row,
    ):
        await registry.execute(LOCK_REGISTRY.encode())
        await town.send(f"/v1/approvals/{interrupt}", approval)
        await town.until(BLOCKED, 1)
        (pid,) = await town.values(HOLDER, run_id)
        if moment == "after the activation":
            await row.execute("SELECT FROM runs WHERE id = %s FOR SHARE", (run_id,))
            await registry.rollback()
            await town.until(STORED, "putters@1 active in the epoch")
        await town.kill_holder(pid)
        await town.values(END_BLOCKED)
        return await town.values(STORED)


@pytest.mark.parametrize(
    ("moment", "stored"),
    [
        ("while it waits for approval", "putters@1 unproven"),
        ("before the activation", "putters@1 unproven"),
        ("after the activation", "putters@1 active in the epoch"),
    ],
)
async def test_build_whose_worker_is_killed_around_the_activation_is_ended_by_another_one_that_uses_the_team(
    town: Town, moment: str, stored: str
) -> None:
    accepted = await town.send("/v1/teams", GOAL, "key")
    run_id = accepted["run_id"]
    await town.model.received(1)
    (builder,) = await town.values(HOLDER, run_id)
    town.model.release("design")
    question = (await town.events(run_id, "approval_required"))[-1]
    if moment == "while it waits for approval":
        await town.kill_holder(builder)
        left = await town.values(STORED)
        approval = {"status": "resolved", "payload": {"approved": True}}
        await town.send(f"/v1/approvals/{question.data['id']}", approval)
    else:
        left = await killed(town, run_id, question.data["id"], moment)
    events = await town.events(run_id)
    repeated = await town.send("/v1/teams", GOAL, "key")
    request = await town.send("/v1/runs", {"input": "Put a thing, please.", "thread_id": "t"})
    used = await town.events(request["run_id"])

    assert left == [stored]
    assert [event.id for event in events] == list(range(1, len(events) + 1))
    assert [event.data["state"] for event in events if event.type == "published"] == ["unproven", "active"]
    assert (events[-1].data["status"], repeated["run_id"]) == ("succeeded", run_id)
    assert await town.values(STORED) == ["putters@1 active in the epoch"]
    assert await town.values(AUDITED) == ["team.build", "team.prove", "team.activate"]
    assert [event.data["agent"] for event in used if event.type == "task_start"] == ["putters", "putter"]
    assert (used[-1].data["status"], town.effects.done()) == ("succeeded", ["put a"])
