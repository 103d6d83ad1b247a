"""A draining process is alive but not ready until it ends."""

import asyncio
import json
import signal
from collections.abc import AsyncGenerator

import aiohttp
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from starling.app.container.database import Database
from starling.app.container.services import open_services
from starling.app.runs.acceptance import RunRequest
from starling.core.settings.schema import Settings
from tests.support.command_line import CliWorkspace, Service, new_workspace
from tests.support.model_script import Answer
from tests.support.model_server import ModelServer
from tests.support.platform import CALLER, ScriptedModel, decision, task


@pytest.fixture
async def model() -> AsyncGenerator[ModelServer]:
    script = ScriptedModel()
    script.run(decision(task("t1", "generalist")), t1=Answer("The answer.", hold="step"))
    async with ModelServer(script) as server:
        yield server


@pytest.mark.parametrize("command", [("up", "--port", "0"), ("worker",)])
async def test_draining_service_is_not_ready(command: tuple[str, ...], database_url: str, model: ModelServer) -> None:
    variables = {
        "DATABASE_URL": database_url,
        "STARLING_WORKER_PORT": "0",
        "LOG_LEVEL": "INFO",
        **model.variables,
        "STARLING_LIMITS": json.dumps({"drain_seconds": 60}),
    }
    with new_workspace(**variables) as workspace:
        code, readiness, health, log = await drained(workspace, command, database_url, model)

    events = [line["event"] for line in log]
    assert (code, readiness, health) == (0, [200, "draining"], 200)
    assert events.count("stopping") == 1
    assert events.count("drained; runs that ended: 0, handed back: 1") == 1


async def drained(
    workspace: CliWorkspace, command: tuple[str, ...], database_url: str, model: ModelServer
) -> tuple[int, list[object], int, list[dict[str, object]]]:
    """Drain a process in the middle of a step; return its exit code, what it said meanwhile, and its log."""
    with workspace.started(*command, "--json") as process:
        service = await asyncio.to_thread(Service.ready, process)
        async with (
            open_services(Settings(), Database(database_url, database_url)) as services,
            aiohttp.ClientSession(service.url) as client,
        ):
            async with client.get("/ready") as response:
                before = response.status
            await services.runs.acceptance.accept(CALLER, RunRequest(input="Do it.", thread_id="t"))
            await model.received(2)  # in the middle of a step
            process.send_signal(signal.SIGTERM)
            said = await unready(client)
            async with client.get("/health") as response:
                health = response.status
        model.release("step")
        _, log = await asyncio.to_thread(process.communicate)
    return process.wait(), [before, said], health, [json.loads(line) for line in log.splitlines()]


async def unready(client: aiohttp.ClientSession) -> object:
    """Return why a process isn't ready, once it isn't: it hears of a signal in a moment."""
    while True:
        async with client.get("/ready") as response:
            if response.status == 503:
                return (await response.json(content_type=None))["code"]
        await asyncio.sleep(0.05)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
async def test_second_signal_ends_a_draining_worker_in_the_middle_of_a_step_and_its_run_is_handed_back(
    number: int, code: int, database_url: str, engine: AsyncEngine, model: ModelServer
) -> None:
    variables = {"DATABASE_URL": database_url, "STARLING_WORKER_PORT": "0", **model.variables}
    limits = {"STARLING_LIMITS": json.dumps({"drain_seconds": 600, "lease_seconds": 600})}
    with new_workspace(**variables, **limits) as workspace, workspace.started("worker", "--json") as process:
        service = await asyncio.to_thread(Service.ready, process)
        async with open_services(Settings(), Database(database_url, database_url)) as services:
            await services.runs.acceptance.accept(CALLER, RunRequest(input="Do it.", thread_id="t"))
        await model.received(2)  # in the middle of a step
        process.send_signal(signal.SIGTERM)
        async with aiohttp.ClientSession(service.url) as client:
            await unready(client)
        process.send_signal(number)
        ended = await asyncio.to_thread(process.wait, 60)
        async with engine.connect() as connection:
            held = (await connection.execute(text("SELECT worker, crashes FROM runs"))).one()

    assert (ended, tuple(held)) == (code, (None, 0))
