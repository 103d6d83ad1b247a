"""Whole runs with agents of CrewAI: approval by a person, also inside a team, cancellation, and resumption."""

from collections.abc import AsyncGenerator

import pytest

from starling.core.agents import LLMAgentConfig, Persona
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.runs.interrupts import InterruptAnswer
from tests.integration.brain.conftest import Open
from tests.support.effect_recorder import EffectRecorder
from tests.support.interrupted_runs import execute_run, open_interrupts
from tests.support.model_script import Answer
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
