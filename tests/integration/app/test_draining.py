"""A draining worker finishes the current step of its runs; another worker continues them."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from psycopg import AsyncConnection
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from tests.support.effect_recorder import AGENT, EffectRecorder
from tests.support.model_script import Answer
from tests.support.model_server import ModelServer
from tests.support.platform import Platform, ScriptedModel, calls, decision, open_platform, task, verdict
from tests.support.worker_runtime import running_worker

_SLOW_FINISHING = """
CREATE FUNCTION take_long() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.3); RETURN OLD; END $$;
CREATE TRIGGER slow BEFORE DELETE ON procrastinate_jobs FOR EACH ROW EXECUTE FUNCTION take_long()"""


@pytest.fixture
async def model() -> AsyncGenerator[ModelServer]:
    script = ScriptedModel(held=True)
    script.supervisor(decision(task("t1", "generalist")))
    script.agent("t1", Answer("The answer."))
    script.reviewer(verdict("APPROVED", "fits"))
    async with ModelServer(script) as server:
        yield server


def worker_messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the messages of the worker's logger; those of other loggers depend on earlier tests."""
    return [record.message for record in caplog.records if record.name == "starling.app.worker.worker"]


async def test_drained_step_is_kept_and_no_model_call_is_repeated(
    database_url: str, engine: AsyncEngine, model: ModelServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "starling.app.worker.worker")

    def opened() -> AbstractAsyncContextManager[Platform]:
        return open_platform(database_url, model, {}, tmp_path)

    async with opened() as first, running_worker(first.worker_runtime.worker) as work:
        key = await first.accept("hello")
        await model.received(1)  # in the middle of its first step
        first.worker_runtime.worker.draining.set()
        model.release("1")
        await work
    logged = worker_messages(caplog)
    steps = len(model.requests)
    for gate in range(2, 9):
        model.release(str(gate))
    async with opened() as second, running_worker(second.worker_runtime.worker) as work:
        stream = await second.stream(key)
        second.worker_runtime.worker.draining.set()
        await work

    async with engine.connect() as connection:
        executions, crashes = (await connection.execute(text("SELECT fence, crashes FROM runs"))).one()
    assert (stream.status, stream.reply) == ("succeeded", "The answer.")
    assert (steps, len(model.requests)) == (1, 3)
    assert (executions, crashes) == (2, 0)
    assert logged == [
        "run claimed",
        "runs that finish their current step before this worker stops: 1",
        "execution ended",
        "drained; runs that ended: 0, handed back: 1",
    ]
    assert [vars(record)["status"] for record in caplog.records if record.message == "run ended"] == ["succeeded"]


@pytest.mark.parametrize("in_one_answer", [True, False])
async def test_drained_worker_begins_no_further_call_and_another_one_continues_the_task(
    database_url: str, tmp_path: Path, *, in_one_answer: bool
) -> None:
    effects = EffectRecorder(tmp_path / "effects")
    script = ScriptedModel()
    stalled = {"stall": "before", "gate": "gate"}
    first, second = ("charge", {"what": "a", **stalled}), ("charge", {"what": "b", **stalled})
    answers = [calls(first, second)] if in_one_answer else [calls(first, ("continue", {})), calls(second)]
    script.run(decision(task("t1", AGENT)), decision(), t1=answers)
    script.reviewer(verdict("APPROVED"))
    servers = {"effects": effects.as_server(max_calls=1)}  # the other call of one answer waits for its turn
    async with ModelServer(script) as model, open_platform(database_url, model, servers, tmp_path) as platform:
        async with running_worker(platform.worker_runtime.worker) as work:
            key = await platform.accept("Charge both.")
            while not (arrived := effects.lines("arrived")):  # noqa: ASYNC110 - of one answer, either may be the first
                await asyncio.sleep(0.01)
            platform.worker_runtime.worker.draining.set()
            while not platform.worker_runtime.brain._stars.draining:  # noqa: ASYNC110  # pyright: ignore[reportPrivateUsage]
                await asyncio.sleep(0.01)
            effects.open("gate")
            await work
        handed_back = effects.done()
    async with ModelServer(script) as model, open_platform(database_url, model, servers, tmp_path) as platform:
        stream = await platform.finish(key)

    assert handed_back == [f"charge {arrived[0]['what']}"]
    assert sorted(effects.done()) == ["charge a", "charge b"]
    assert (stream.status, stream.of("in_doubt")) == ("succeeded", [])
    assert [line["fence"] for line in effects.lines("arrived")] == [1, 2]


async def test_drained_worker_finishes_the_jobs_of_its_runs_before_it_ends(
    database_url: str, engine: AsyncEngine, model: ModelServer, tmp_path: Path
) -> None:
    async with open_platform(database_url, model, {}, tmp_path) as platform:
        async with await AsyncConnection.connect(database_url, autocommit=True) as connection:
            await connection.execute(_SLOW_FINISHING)
        async with running_worker(platform.worker_runtime.worker) as work:
            await platform.accept("hello")
            await model.received(1)
            platform.worker_runtime.worker.draining.set()
            model.release("1")
            await work

        async with engine.connect() as connection:
            jobs = await connection.execute(text("SELECT status::text FROM procrastinate_jobs"))
            assert jobs.scalars().all() == ["todo"]


async def test_drain_waits_at_most_drain_seconds_for_a_step(
    database_url: str, model: ModelServer, tmp_path: Path
) -> None:
    async with asyncio.timeout(60):
        platform = open_platform(database_url, model, {}, tmp_path, drain_seconds=0.2)
        async with platform as opened, running_worker(opened.worker_runtime.worker) as work:
            await opened.accept("hello")
            await model.received(1)
            opened.worker_runtime.worker.draining.set()

            await work


async def test_idle_worker_drains_without_log_messages(
    database_url: str, model: ModelServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "starling.app.worker.worker")
    async with open_platform(database_url, model, {}, tmp_path) as platform:
        worker = platform.worker_runtime.worker
        async with running_worker(worker) as idle:
            worker.draining.set()
            await idle

    assert worker_messages(caplog) == []
