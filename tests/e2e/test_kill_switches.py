"""A kill switch set at an API process stops calls of a worker."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.infra.postgres.engine import open_engine
from tests.support.command_line import Service, new_workspace
from tests.support.effect_recorder import AGENT, EffectRecorder
from tests.support.model_script import Answer, Body, Rule, Script, When
from tests.support.model_server import ModelServer
from tests.support.platform import calls, decision, task, verdict
from tests.support.sse import Event, read_events

pytestmark = pytest.mark.asyncio(loop_scope="module")

TURNS = 45  # that the agent takes, one call in each
PACE = 0.08  # seconds at least that a turn takes: all of them last longer than a switch needs
BEFORE = 5  # calls that have gone before something is switched off
SWITCHES = {"tenant": "default", "agent": AGENT, "server": "effects"}
COMMANDS = (("serve", "--port", "0", "--json"), ("worker", "--json"))
DEAFEN = text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%starling_halts%'")
UNHEARD = text(
    "INSERT INTO switches (tenant, kind, name, reason, actor) VALUES (:tenant, :kind, :name, 'Stop.', 'test')"
)
# without a call that was stopped between its record and its departure
LAST_CALL = text("""
SELECT extract(epoch FROM max(ledger.dispatched_at) - min(switches.created_at))::float8, count(dispatched_at)
FROM ledger, switches WHERE ledger.run_id = :run AND ledger.outcome ->> 'code' IS DISTINCT FROM 'switched_off'""")


@dataclass(frozen=True, slots=True)
class Town:
    """A client of the API process, the database that it shares with the worker, and what was really called."""

    client: aiohttp.ClientSession
    engine: AsyncEngine
    effects: EffectRecorder

    @asynccontextmanager
    async def calling(self) -> AsyncGenerator[tuple[str, asyncio.Task[list[Event]]]]:
        """Ask for a run that calls again and again, and give its id and its stream, once it does."""
        self.effects.file.unlink(missing_ok=True)
        body = {"input": "Charge it.", "thread_id": "t", "config": {"limits": {"tool_iterations": TURNS}}}
        async with asyncio.TaskGroup() as group:
            async with self.client.post("/v1/runs", json=body) as response:
                run_id = (await response.json())["run_id"]
            stream = group.create_task(self._read(run_id))
            async with asyncio.timeout(60):
                while len(self.effects.done()) < BEFORE:  # noqa: ASYNC110 - another process
                    await asyncio.sleep(0.01)
            yield run_id, stream

    async def _read(self, run_id: str) -> list[Event]:
        async with self.client.get(f"/v1/runs/{run_id}/events") as response:
            return [event async for event in read_events(response)]

    async def execute(self, statement: Any, **values: str) -> Any:
        async with self.engine.begin() as connection:
            return await connection.execute(statement, values)


def a_model() -> ModelServer:
    turn = count()

    async def charge(body: Body) -> Answer:
        return calls(("charge", {"what": str(next(turn))}), ("continue", {})) if body.get("tools") else await rest(body)

    rest = Script(
        Rule(decision(task("t1", AGENT)), When(schema="supervisor_decision")),
        Rule(verdict("APPROVED"), When(schema="verdict")),
        Rule(Answer("That is all.")),
    )
    return ModelServer(charge, latency=PACE)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def town(module_database_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Town]:
    folder: Path = tmp_path_factory.mktemp("switches")
    effects = EffectRecorder(folder / "effects")
    config = folder / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"effects": effects.as_server()}}))
    engine = open_engine(module_database_url)
    async with a_model() as model:
        variables = {
            "DATABASE_URL": module_database_url,
            "STARLING_MCP_CONFIG": str(config),
            "STARLING_MODEL": "openai:scripted",
            "OPENAI_BASE_URL": model.url,
            "OPENAI_API_KEY": "none",
            "STARLING_LIMITS": json.dumps({"tool_iterations": TURNS}),
        }
        with new_workspace(**variables) as workspace, ExitStack() as stack:
            begun = [stack.enter_context(workspace.started(*command)) for command in COMMANDS]
            api, _ = [await asyncio.to_thread(Service.ready, process) for process in begun]
            async with aiohttp.ClientSession(api.url, headers=workspace.admin_headers) as client:
                yield Town(client, engine, effects)
    await engine.dispose()


@pytest.mark.parametrize("notice", ["heard", "missed"])
@pytest.mark.parametrize("kind", SWITCHES)
async def test_switched_off_target_is_not_called_for_the_rest_of_a_run(town: Town, kind: str, notice: str) -> None:
    name = SWITCHES[kind]
    async with town.calling() as (run_id, stream):
        if notice == "heard":
            switch = {"kind": kind, "name": name, "reason": "Stop."}
            async with town.client.put("/v1/switches", json=switch) as response:
                assert response.status == 200, await response.text()
        else:
            await town.execute(DEAFEN)
            await town.execute(UNHEARD, tenant=name if kind == "tenant" else "*", kind=kind, name=name)
        told = await stream
    ((seconds, sent),) = await town.execute(LAST_CALL, run=run_id)
    async with town.client.delete("/v1/switches", params={"kind": kind, "name": name}) as response:
        assert response.status == 204
    print(f"{kind}, {notice}: the last call began {seconds:.3f} s after the switch")

    refused = [event for event in told if event.type == "tool_result" and "switched off" in event.data["result"]]
    assert len(town.effects.lines("arrived")) == sent
    assert len(refused) == TURNS - sent > 0
