"""Two workers on one Postgres: if one fails, the other continues and nothing is done twice."""

import asyncio
import json
import signal
from collections.abc import AsyncGenerator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest
from psycopg import AsyncConnection
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.app.container.database import Database
from starling.app.container.services import open_services
from starling.app.runs.acceptance import RunRequest
from starling.app.services import Services
from starling.core.errors import ConflictError
from starling.core.run_document.rows import EventRow
from starling.core.settings.schema import Settings
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.interrupts import InterruptAnswer, StoredInterrupt
from tests.support.command_line import Service, new_workspace
from tests.support.effect_recorder import AGENT, EffectRecorder
from tests.support.interrupted_runs import HOLD_DISPATCH
from tests.support.model_script import Answer
from tests.support.model_server import ModelServer
from tests.support.platform import CALLER, RunStream, ScriptedModel, calls, decision, task, verdict
from tests.support.run_factories import wait_for_lock_waiter

_LEASE = 3
_RUN = text("SELECT fence, crashes, split_part(coalesce(worker, ''), ':', 2) FROM runs WHERE id = :run")


@dataclass(frozen=True)
class Town:
    """Two workers, what they change, and the place where runs are accepted and read."""

    workers: tuple[Service, Service]
    services: Services
    engine: AsyncEngine
    effects: EffectRecorder
    model: ModelServer

    async def accept(self, thread: str = "t") -> RunKey:
        request = RunRequest(input="Put this, then charge that.", thread_id=thread)
        return (await self.services.runs.acceptance.accept(CALLER, request)).key

    async def between_steps(self) -> RunKey:
        """Accept a run, and return when its first task is done and the model is asked about the second one."""
        key = await self.accept()
        await self.model.received(4)  # a decision, an agent, a review, an agent
        return key

    async def standing(self, key: RunKey) -> tuple[int, int, int]:
        """Return the number of a run's executions, the number of its crashes, and the process that holds it."""
        async with self.engine.connect() as connection:
            fence, crashes, pid = (await connection.execute(_RUN, {"run": key.id})).one()
        return fence, crashes, int(pid or 0)

    async def holder(self, key: RunKey) -> tuple[Service, Service]:
        """Return the worker that has a run, and the other one."""
        _, _, pid = await self.standing(key)
        first, second = self.workers
        return (first, second) if first.process.pid == pid else (second, first)

    async def questions(self, key: RunKey) -> list[StoredInterrupt]:
        """Return what a run asks, once it asks something."""
        async with asyncio.timeout(60):
            while not (asked := await self.services.runs.interrupts.waiting(key.tenant, run=key.id)):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        return asked

    async def stream(self, key: RunKey) -> RunStream:
        return RunStream(key, [event async for event in self.services.runs.reader.follow(key)])

    async def written(self, key: RunKey) -> list[EventRow]:
        return list(await self.services.runs.reader.events(key))


@pytest.fixture
def charge() -> dict[str, str]:
    """The arguments of the call of the second task, which may not be made twice."""
    return {"what": "that"}


@pytest.fixture
def call_seconds() -> float:
    """The time limit of a call."""
    return 5


@pytest.fixture
async def model(charge: dict[str, str]) -> AsyncGenerator[ModelServer]:
    script = ScriptedModel()
    script.supervisor(decision(task("t1", AGENT), task("t2", AGENT, after=["t1"])))
    script.agent("t1", calls(("put", {"what": "this"})))
    script.agent("t2", replace(calls(("charge", charge)), hold="t2"))
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("Both are done [1] [2]."))
    async with ModelServer(script) as server:
        yield server


@pytest.fixture
async def town(
    database_url: str, engine: AsyncEngine, model: ModelServer, call_seconds: float, tmp_path: Path
) -> AsyncGenerator[Town]:
    effects = EffectRecorder(tmp_path / "effects")
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"effects": effects.as_server(timeout=call_seconds)}}))
    variables = {
        "DATABASE_URL": database_url,
        "STARLING_MCP_CONFIG": str(config),
        "LOG_LEVEL": "INFO",
        **model.variables,
        "STARLING_LIMITS": json.dumps({"lease_seconds": _LEASE, "drain_seconds": 60}),
    }
    with new_workspace(**variables) as workspace, ExitStack() as stack:
        begun = [stack.enter_context(workspace.started("worker", "--json")) for _ in range(2)]
        first, second = [await asyncio.to_thread(Service.ready, process) for process in begun]
        async with open_services(Settings(), Database(database_url, database_url)) as services:
            yield Town((first, second), services, engine, effects, model)
        for process in begun:
            process.kill()


async def ended(service: Service) -> int:
    return await asyncio.to_thread(service.process.wait, 60)


def both_done(town: Town) -> bool:
    return town.effects.done() == ["put this", "charge that"]


async def test_worker_killed_between_steps_is_replaced(town: Town) -> None:
    key = await town.between_steps()
    holder, _ = await town.holder(key)

    holder.process.send_signal(signal.SIGKILL)
    town.model.release("t2")
    stream = await town.stream(key)

    assert stream.status == "succeeded"
    assert both_done(town)
    assert len(town.model.requests) == 4 + 3  # what was out is asked again, then a review and the final answer
    executions, crashes, _ = await town.standing(key)
    assert (executions >= 2, crashes) == (True, 0)


async def test_worker_stopped_past_its_lease_writes_and_calls_nothing(town: Town) -> None:
    key = await town.between_steps()
    holder, other = await town.holder(key)

    stopped = psutil.Process(holder.process.pid)
    stopped.suspend()
    town.model.release("t2")
    stream = await town.stream(key)
    other.process.send_signal(signal.SIGTERM)
    await ended(other)
    stopped.resume()
    again = await town.stream(await town.accept("another"))  # by the worker that was stopped

    assert (stream.status, again.status) == ("succeeded", "succeeded")
    assert await town.written(key) == stream.events
    assert town.effects.done() == ["put this", "charge that"] * 2


async def test_worker_stopped_after_the_record_that_its_call_left_does_not_make_it_once_another_took_over(
    town: Town, database_url: str
) -> None:
    key = await town.between_steps()
    holder, other = await town.holder(key)
    stopped = psutil.Process(holder.process.pid)
    async with await AsyncConnection.connect(database_url, autocommit=True) as connection:
        await connection.execute(HOLD_DISPATCH)
        await connection.execute("SELECT pg_advisory_lock(7)")
        town.model.release("t2")
        await wait_for_lock_waiter(database_url)
        stopped.suspend()
    (question,) = await town.questions(key)  # "dispatched" is durable, and the call has not left
    answers = [InterruptAnswer(question.id, "resolved", {"resolution": "not_done"})]
    async with asyncio.timeout(60):
        while True:  # the stopped worker may still make the call, until its time limit has passed
            try:
                await town.services.runs.interrupts.answer(key, answers, "somebody")
                break
            except ConflictError:
                await asyncio.sleep(0.1)
    stream = await town.stream(key)
    other.process.send_signal(signal.SIGTERM)
    await ended(other)
    stopped.resume()
    again = await town.stream(await town.accept("another"))  # by the worker that was stopped

    assert (stream.status, again.status) == ("succeeded", "succeeded")
    assert town.effects.done() == ["put this", "charge that"] * 2
    assert [line["what"] for line in town.effects.lines("arrived")] == ["this", "that"] * 2


@pytest.mark.parametrize("charge", [{"what": "that", "stall": "before", "gate": "gate"}])
@pytest.mark.parametrize("call_seconds", [60])
async def test_call_of_a_worker_that_is_stopped_meanwhile_may_still_be_going_on_and_is_made_once(town: Town) -> None:
    key = await town.between_steps()
    holder, other = await town.holder(key)
    town.model.release("t2")
    await town.effects.until("arrived", "that")
    stopped = psutil.Process(holder.process.pid)
    stopped.suspend()

    (question,) = await town.questions(key)
    with pytest.raises(ConflictError, match="may still be going on: `not_done` is accepted from "):
        await town.services.runs.interrupts.answer(
            key, [InterruptAnswer(question.id, "resolved", {"resolution": "not_done"})], "somebody"
        )
    town.effects.open("gate")
    await town.effects.until("done", "that")
    done = InterruptAnswer(question.id, "resolved", {"resolution": "done", "result": "It is charged."})
    await town.services.runs.interrupts.answer(key, [done], "somebody")
    stream = await town.stream(key)
    other.process.send_signal(signal.SIGTERM)
    await ended(other)
    stopped.resume()
    again = await town.stream(await town.accept("another"))  # by the worker that was stopped

    assert "may not have ended" in question.message
    assert (stream.status, again.status) == ("succeeded", "succeeded")
    assert await town.written(key) == stream.events
    assert town.effects.done() == ["put this", "charge that"] * 2
