"""A run that crashes its workers repeatedly is parked."""

import json
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from sqlalchemy import text

from starling.infra.postgres.runs.acceptance import RunKey
from tests.support.command_line import CliWorkspace, Process, Service, new_workspace
from tests.support.effect_recorder import AGENT, EffectRecorder
from tests.support.model_script import Answer, Rule, Script, When
from tests.support.model_server import ModelServer
from tests.support.platform import Platform, calls, decision, open_platform, task, verdict

CRASHES = 2
LIMITS = {"lease_seconds": 3, "crashes_per_run": CRASHES, "tool_call_seconds": 120}
_GARBAGE = text("INSERT INTO checkpoints (thread_id, checkpoint_id, checkpoint) VALUES (:run, 'z', '[]')")
_HELD = text("SELECT worker, crashes FROM runs WHERE id = :run")


def a_call(what: str) -> Answer:
    """A call that waits at a gate of its own."""
    return calls(("read_it", {"what": what, "stall": "before", "gate": what}))


@pytest.fixture
async def model() -> AsyncGenerator[ModelServer]:
    script = Script(
        Rule(decision(reply="Fine."), When(schema="supervisor_decision", contains="And now?")),
        Rule(decision(task("t1", AGENT, "take it down")), When(schema="supervisor_decision", contains="Take it down.")),
        Rule(decision(task("t1", AGENT, "look")), When(schema="supervisor_decision")),
        Rule(verdict("APPROVED", "fits"), When(schema="verdict")),
        Rule(a_call("poison"), When(contains="take it down")),
        Rule(a_call("look"), When(contains='<task id="t1">')),
        Rule(Answer("Seen.")),
    )
    async with ModelServer(script) as model:
        yield model


@pytest.fixture
def effects(tmp_path: Path) -> EffectRecorder:
    return EffectRecorder(tmp_path / "record")


@pytest.fixture
async def platform(
    database_url: str, model: ModelServer, effects: EffectRecorder, tmp_path: Path
) -> AsyncGenerator[Platform]:
    async with open_platform(database_url, model, {"effects": effects.as_server()}, tmp_path) as platform:
        yield platform


@dataclass(frozen=True, slots=True)
class Crew:
    """Worker processes beside a platform that doesn't work itself."""

    workspace: CliWorkspace
    platform: Platform
    _stack: ExitStack = field(default_factory=ExitStack)
    _alive: dict[int, Process] = field(default_factory=dict[int, Process])

    @classmethod
    @contextmanager
    def of(cls, platform: Platform, database_url: str) -> Generator["Crew"]:
        """Give one whose processes end with the block."""
        workspace = new_workspace(
            DATABASE_URL=database_url,
            STARLING_MODEL="scripted:small",
            STARLING_PROVIDERS=json.dumps({"scripted": {"base_url": platform.model.url}}),
            STARLING_LIMITS=json.dumps(LIMITS),
        )
        with workspace as folder, ExitStack() as stack:
            yield cls(folder, platform, stack)

    def grow(self, count: int) -> None:
        """Start so many more, and wait until they work."""
        fresh = [self._stack.enter_context(self.workspace.started("worker", "--json")) for _ in range(count)]
        for process in fresh:
            Service.ready(process)
            self._alive[process.pid] = process

    async def kill_who_holds(self, key: RunKey) -> None:
        """End the process that works on a run, so that it can't say a word more."""
        worker, _ = await self.look_at(key)
        self._alive.pop(int(worker.split(":")[1])).kill()

    async def look_at(self, key: RunKey) -> tuple[str, int]:
        """Return who holds a run, and how often it was taken over from somebody who hadn't handed it back."""
        async with self.platform.services.engine.connect() as connection:
            worker, crashes = (await connection.execute(_HELD, {"run": key.id})).one()
        return worker, crashes


@pytest.mark.timeout(180)
async def test_run_that_crashes_its_workers_is_parked_and_no_other_run_is(
    platform: Platform, effects: EffectRecorder, database_url: str
) -> None:
    with Crew.of(platform, database_url) as crew:
        crew.grow(1)
        poison = await platform.accept("Take it down.", thread="poison")
        bystander = await platform.accept("Look.", thread="bystander")
        await effects.until("arrived", "poison")
        await effects.until("arrived", "look")
        crew.grow(CRASHES)

        await crew.kill_who_holds(poison)
        effects.open("look")
        seen = await platform.stream(bystander)
        for life in range(2, CRASHES + 1):
            await effects.until("arrived", "poison", life)
            await crew.kill_who_holds(poison)
        stream = await platform.stream(poison)
        after = await platform.stream(await platform.accept("And now?", thread="poison"))

        assert (stream.status, stream.codes) == ("parked", ["parked"])
        assert f"{CRASHES} times" in stream.reply
        assert [(await crew.look_at(key))[1] for key in (poison, bystander)] == [CRASHES, 1]
        assert seen.status == "succeeded"
        assert (after.status, after.reply) == ("succeeded", "Fine.")


async def test_run_with_unreadable_data_is_parked(platform: Platform) -> None:
    key = await platform.accept("Take it down.")
    claim = await platform.claim(key)
    async with platform.services.engine.begin() as connection:
        await connection.execute(_GARBAGE, {"run": key.id})
    with pytest.raises((TypeError, KeyError)):
        await platform.brain.park(replace(claim, run=replace(claim.run, crashes=3)))

    await platform.brain.park(replace(claim, run=replace(claim.run, crashes=4)))

    assert (await platform.stream(key)).status == "parked"
