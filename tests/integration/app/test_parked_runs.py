"""A run that crashes its workers repeatedly is parked."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text

from starling.app.worker import isolation
from starling.infra.postgres.runs.acceptance import RunKey
from tests.support.command_line import Process, Service, new_workspace
from tests.support.effect_recorder import AGENT, EffectRecorder
from tests.support.gateway_harness import SERVERS
from tests.support.model_script import Answer, Rule, Script, When
from tests.support.model_server import ModelServer
from tests.support.platform import Platform, calls, decision, open_platform, task, verdict
from tests.support.worker_runtime import running_worker

CRASHES = 1
KILLER = "mcp_agent_killer"
_KILLED_SECONDS = 60  # until a process that is killed has ended
LIMITS = {"lease_seconds": 60, "crashes_per_run": CRASHES, "tool_call_seconds": 120}
_GARBAGE = text("INSERT INTO checkpoints (thread_id, checkpoint_id, checkpoint) VALUES (:run, 'z', '[]')")
_SUSPECT = text("UPDATE runs SET isolation = 'due' WHERE id = :run")
_EXPIRE = text("UPDATE runs SET lease_until = now() - interval '1 second' WHERE status = 'running'")
_CRASHES = text("SELECT crashes FROM runs WHERE id = :run")


@pytest.fixture
async def model() -> AsyncGenerator[ModelServer]:
    script = Script(
        Rule(decision(reply="Fine."), When(schema="supervisor_decision", contains="And now?")),
        Rule(
            decision(task("t1", KILLER, "take it down")), When(schema="supervisor_decision", contains="Take it down.")
        ),
        Rule(decision(task("t1", AGENT, "look")), When(schema="supervisor_decision")),
        Rule(verdict("APPROVED", "fits"), When(schema="verdict")),
        Rule(calls(("act", {})), When(contains="take it down")),
        Rule(calls(("read_it", {"what": "look", "stall": "before", "gate": "look"})), When(contains='<task id="t1">')),
        Rule(Answer("Seen.")),
    )
    async with ModelServer(script) as model:
        yield model


@pytest.fixture
def effects(tmp_path: Path) -> EffectRecorder:
    return EffectRecorder(tmp_path / "record")


@pytest.fixture
async def killed(tmp_path: Path) -> AsyncGenerator[Path]:
    """The file with the ids of the processes that the killing server has had killed."""
    (file := tmp_path / "killed").touch()

    async def kill() -> None:
        done = 0
        while True:
            for pid in file.read_text().splitlines()[done:]:
                os.kill(int(pid), signal.SIGKILL)
                done += 1
            await asyncio.sleep(0.02)

    killing = asyncio.create_task(kill())
    yield file
    killing.cancel()


@pytest.fixture
async def platform(
    database_url: str, model: ModelServer, effects: EffectRecorder, killed: Path, tmp_path: Path
) -> AsyncGenerator[Platform]:
    killing = [str(SERVERS / "misbehaving.py"), "killing", str(killed)]
    servers = {
        "effects": effects.as_server(),
        "killer": {"command": sys.executable, "args": killing, "x-starling": {"effect": "read"}},
    }
    async with open_platform(database_url, model, servers, tmp_path) as platform:
        yield platform


@contextmanager
def workers(platform: Platform, database_url: str) -> Generator[Callable[[], Process]]:
    """Yield what starts a worker process and returns it once it works; the processes end with the block."""
    workspace = new_workspace(
        DATABASE_URL=database_url,
        STARLING_MODEL="scripted:small",
        STARLING_PROVIDERS=json.dumps({"scripted": {"base_url": platform.model.url}}),
        STARLING_LIMITS=json.dumps(LIMITS),
    )
    with workspace as folder, ExitStack() as stack:

        def start() -> Process:
            process = stack.enter_context(folder.started("worker", "--json"))
            Service.ready(process)
            return process

        yield start


async def queue_again(platform: Platform) -> None:
    """Queue the runs of a worker that was killed, as the next one does once their leases have expired."""
    async with platform.services.storage.engine.begin() as connection:
        await connection.execute(_EXPIRE)
    await platform.services.runs.leases.sweep(grace_seconds=60, lease_seconds=60)


async def crashes(platform: Platform, key: RunKey) -> int:
    async with platform.services.storage.engine.connect() as connection:
        return (await connection.execute(_CRASHES, {"run": key.id})).scalar_one()


async def test_run_that_kills_its_process_is_parked_and_its_neighbours_succeed(
    platform: Platform, effects: EffectRecorder, killed: Path, database_url: str
) -> None:
    with workers(platform, database_url) as start:
        first = await asyncio.to_thread(start)  # the model's server runs in this loop
        neighbours = [await platform.accept("Look.", thread=thread) for thread in ("one", "two")]
        await effects.until("arrived", "look", len(neighbours))
        poison = await platform.accept("Take it down.", thread="poison")
        await asyncio.to_thread(first.wait, _KILLED_SECONDS)
        await queue_again(platform)
        second = await asyncio.to_thread(start)
        await asyncio.to_thread(second.wait, _KILLED_SECONDS)
        await queue_again(platform)
        third = await asyncio.to_thread(start)

        stream = await platform.stream(poison)
        effects.open("look")
        seen = [await platform.stream(key) for key in neighbours]
        after = await platform.stream(await platform.accept("And now?", thread="poison"))

        assert (stream.status, stream.codes) == ("parked", ["parked"])
        assert f"{CRASHES} times" in stream.reply
        assert [await crashes(platform, key) for key in (poison, *neighbours)] == [CRASHES, 0, 0]
        assert [neighbour.status for neighbour in seen] == ["succeeded"] * 2
        assert (after.status, after.reply) == ("succeeded", "Fine.")
        killed_processes = killed.read_text().split()
        assert killed_processes[:2] == [str(first.pid), str(second.pid)]
        assert len(set(killed_processes)) == 2 + CRASHES
        assert third.poll() is None


async def test_what_a_suspected_run_measures_is_in_the_metrics_of_its_worker(platform: Platform) -> None:
    key = await platform.accept("And now?")
    async with platform.services.storage.engine.begin() as connection:
        await connection.execute(_SUSPECT, {"run": key.id})

    async with running_worker(platform.worker_runtime.worker):
        stream = await platform.stream(key)
        exporter = platform.services.storage.metrics
        async with asyncio.timeout(60):
            while b'starling_runs_ended_total{status="succeeded"} 1.0' not in await exporter.text():  # noqa: ASYNC110
                await asyncio.sleep(0.05)  # the process ends after its run

    measured = (await exporter.text()).decode()
    assert stream.status == "succeeded"
    assert 'starling_model_calls_total{model="scripted:small",outcome="ok",role="reasoning"} 1.0' in measured
    assert 'direction="input",model="scripted:small",role="reasoning"} 11.0' in measured
    assert 'starling_run_seconds_count{status="succeeded"} 1.0' in measured


async def test_process_of_a_suspected_run_that_cannot_start_counts_as_a_crash(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation, "_PROGRAM", "import no_such_module")
    monkeypatch.setattr(isolation, "_RESTART_SECONDS", 0)
    key = await platform.accept("Look.")
    claim = await platform.claim(key)

    storage = platform.services.storage
    alone = isolation.IsolatedRuns(
        platform.services.runs.leases, platform.settings, storage.url, storage.direct_url, lambda _: None
    )
    done = await alone.execute(claim)

    assert (done, await crashes(platform, key)) == (None, 1)


async def test_run_with_unreadable_data_is_parked(platform: Platform) -> None:
    key = await platform.accept("Take it down.")
    claim = await platform.claim(key)
    async with platform.services.storage.engine.begin() as connection:
        await connection.execute(_GARBAGE, {"run": key.id})
    with pytest.raises((TypeError, KeyError)):
        await platform.brain.park(replace(claim, run=replace(claim.run, crashes=3)))

    await platform.brain.park(replace(claim, run=replace(claim.run, crashes=4)))

    assert (await platform.stream(key)).status == "parked"
