"""Whole runs with agents of CrewAI: approval by a person, cancellation, resumption, and what CrewAI reaches."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from starling.core.agents import LLMAgentConfig, Persona
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.runs.interrupts import InterruptAnswer
from tests.integration.brain.conftest import Open
from tests.support.effect_recorder import EffectRecorder
from tests.support.interrupted_runs import execute_run, open_interrupts
from tests.support.model_documents import verdict_json
from tests.support.model_script import Answer, Rule, Script, When
from tests.support.model_server import ModelServer
from tests.support.platform import CALLER as OWNER
from tests.support.platform import Platform, ScriptedModel, calls, decision, task, verdict

BUYER = LLMAgentConfig(
    id="buyer",
    runtime="crewai",
    persona=Persona(role="Buyer", goal="Buy what is needed."),
    tools=("effects.charge", "effects.read_it"),
)


@pytest.fixture
async def platform(opened: Open, effects: EffectRecorder) -> AsyncGenerator[Platform]:
    async with opened(servers={"effects": effects.as_server(approval="unsafe")}) as platform:
        await platform.services.agents.create(OWNER, BUYER, Actor.local("test"))
        yield platform


async def test_call_of_a_persona_waits_for_approval_and_is_made_once(
    platform: Platform, script: ScriptedModel, effects: EffectRecorder
) -> None:
    script.supervisor(decision(task("t1", "buyer")), decision())
    script.agent("t1", calls(("read_it", {"what": "price"}), ("charge", {"what": "tea"})), Answer("Tea was bought."))
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("Tea was bought [1]."))
    key = await platform.accept("Buy tea.")
    await execute_run(platform, key)
    [question] = await open_interrupts(platform, key)
    assert effects.done() == ["read_it price"]

    await platform.services.runs.interrupts.answer(
        key, [InterruptAnswer(question.id, "resolved", {"approved": True})], "me"
    )
    stream = await platform.finish(key)

    assert (stream.status, stream.codes) == ("succeeded", [])
    assert effects.done() == ["read_it price", "charge tea"]
    [result] = stream.of("task_result")
    assert result["summary"] == "Tea was bought."
    assert "You are Buyer." in str(platform.requests_containing('<task id="t1">')[0]["messages"][0])
    assert len(platform.requests_containing("Current Task")) == 2


async def test_cancelled_run_of_a_persona_ends_while_its_call_is_out(
    platform: Platform, script: ScriptedModel, effects: EffectRecorder
) -> None:
    script.supervisor(decision(task("t1", "buyer")))
    script.agent("t1", calls(("read_it", {"what": "price", "stall": "before", "gate": "never"})))
    key = await platform.accept("Buy tea.")
    async with platform.executing(key) as life:
        await effects.until("arrived", "price")

        await platform.services.runs.cancellation.cancel(key)
        await life
    stream = await platform.stream(key)
    effects.open("never")

    assert stream.status == "cancelled"
    assert [one["result"] for one in stream.of("tool_result")] == ["The run was cancelled. The call was cut off."]


async def test_crash_in_a_call_and_between_two_answers_repeats_neither_effects_nor_recorded_answers(
    opened: Open, script: ScriptedModel, effects: EffectRecorder
) -> None:
    script.supervisor(decision(task("t1", "buyer"), task("t2", "buyer")), decision())
    script.agent("t1", calls(("charge", {"what": "first"})), Answer("It was charged.", hold="answer"))
    script.agent("t2", calls(("pay", {"what": "second", "stall": "after", "gate": "gate"})), Answer("It was paid."))
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("Both are done [1] [2]."))
    async with opened(servers={"effects": effects.as_server()}) as platform:
        await platform.services.agents.create(
            OWNER, BUYER.model_copy(update={"tools": ("effects.*",)}), Actor.local("test")
        )
        key = await platform.accept("Buy both.")
        async with platform.executing(key):
            await effects.until("done", "second")
            await platform.model.received(4)  # a decision, an answer of each agent, and the one that is held
        effects.open("gate")
        platform.model.release("answer")

        stream = await platform.finish(key)

        asked = [body for body in platform.requests_containing("Current Task") if body.get("tools")]
    assert (stream.status, stream.codes) == ("succeeded", [])
    assert {one["task_id"]: one["summary"] for one in stream.of("task_result")} == {
        "t1": "It was charged.",
        "t2": "It was paid.",
    }
    assert sorted(effects.done()) == ["charge first", "pay second"]
    assert len(asked) == 3 + 2  # only the answer that was held is asked for again


ROOT = Path(__file__).parents[3]
LOOK: dict[str, Any] = {"name": "look", "arguments": {"thing": "tea"}}
ORDER: dict[str, Any] = {"name": "order", "arguments": {"item": "tea"}}
DOUBT: dict[str, Any] = {"name": "order", "arguments": {"item": "doubt"}}


def script() -> Script:
    """A model that makes the first agent call tools in parallel, lets the second answer at once, fails the third.

    The fourth makes a call whose outcome is unknown, and the fifth calls tools for as long as it may.
    """
    return Script(
        Rule(Answer(verdict_json("APPROVED")), When(schema="verdict")),
        Rule(Answer(status=400), When(contains=">fail</task>")),
        Rule(Answer(tool_calls=[LOOK, DOUBT]), When(contains=">doubt</task>")),
        Rule(Answer(tool_calls=[LOOK]), When(contains=">tireless</task>", tool="order")),
        Rule(Answer("Nothing was bought."), When(contains=">buy nothing</task>")),
        Rule(Answer(tool_calls=[LOOK, ORDER, LOOK]), When(tool="order", nth=1)),
        Rule(Answer("Tea was bought.")),
    )


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home folder with CrewAI in it, below a `.env` that loading it would find."""
    spec = find_spec("crewai")
    assert spec is not None, "The extra `crewai` is not installed: run make environment."
    assert spec.origin is not None
    home = tmp_path / "home"
    (home / "packages").mkdir(parents=True)
    (home / "packages/crewai").symlink_to(Path(spec.origin).parent)
    (home / ".env").write_text("FOUND_IN_A_FILE=1\nOPENAI_API_KEY=wrong\n")
    return home


async def test_crewai_connects_to_the_model_only_prints_nothing_and_leaves_the_home_folder_alone(
    home: Path, tmp_path: Path
) -> None:
    before = sorted(home.rglob("*"))
    path = os.pathsep.join([str(home / "packages"), str(ROOT / "src"), str(ROOT)])
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": path, "TMPDIR": str(tmp_path)}
    report = tmp_path / "report"
    async with ModelServer(script()) as model:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "tests.support.guarded_crew", model.url, str(report)),
            cwd=home,
            env=environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        printed, _ = await process.communicate()
        host, port = model.root.removeprefix("http://").split(":")

    assert printed.decode() == ""
    found = json.loads(report.read_text())
    assert found["ended"] == ["approved", "failed", "failed", "suspended", "approved"]
    assert set(found["connected"]) == {str((host, int(port)))}
    assert not {"started", "looked_up"} & set(found)  # neither programs nor names of hosts
    assert {file for file in found["written"] if file.startswith(str(home))} == set()
    assert sorted(home.rglob("*")) == before
    assert not Path(found["folder"]).exists()
    assert "FOUND_IN_A_FILE" not in found["changed"]
    assert found["changed"]["CREWAI_DISABLE_TELEMETRY"] == "true"
