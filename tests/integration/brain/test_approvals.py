"""A call that needs approval is made once somebody approved it, exactly as it was shown, or not at all."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from starling.core.events.run_events import ExactCall
from starling.core.runs import RunStatus
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.kill_switches import Target
from starling.infra.postgres.retention import PruneSelection, Retention
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.interrupts import InterruptAnswer, StoredInterrupt
from starling.infra.postgres.runs.ledger import LedgerReader
from tests.integration.brain.conftest import Open
from tests.support.effect_recorder import AGENT, EffectRecorder
from tests.support.interrupted_runs import execute_run, open_interrupts, wait_for_event
from tests.support.model_script import Answer
from tests.support.platform import Platform, ScriptedModel, calls, decision, task, verdict
from tests.support.soak import rounds

YES: dict[str, Any] = {"approved": True}
CHARGE = calls(("charge", {"what": "a"}))


@pytest.fixture
async def platform(opened: Open, effects: EffectRecorder) -> AsyncGenerator[Platform]:
    async with opened(servers={"effects": effects.as_server(approval="unsafe")}) as platform:
        yield platform


def one_task(script: ScriptedModel, *answers: Answer) -> None:
    script.run(decision(task("t1", AGENT)), decision(), t1=[*answers], qa=Answer("That is what came of it [1]."))


async def begun(platform: Platform) -> RunKey:
    key = await platform.accept("Do it.")
    await execute_run(platform, key)
    assert (await platform.services.runs.documents.row(key)).status is RunStatus.WAITING
    return key


def call_of(question: StoredInterrupt) -> ExactCall:
    return ExactCall.model_validate(question.call)


async def say(platform: Platform, key: RunKey, question: StoredInterrupt, payload: dict[str, Any] | None) -> None:
    state = "cancelled" if payload is None else "resolved"
    await platform.services.runs.interrupts.answer(key, [InterruptAnswer(question.id, state, payload or {})], "me")


async def test_approved_call_is_made_once_with_the_arguments_that_were_shown(
    platform: Platform, script: ScriptedModel, effects: EffectRecorder
) -> None:
    one_task(script, CHARGE)
    key = await begun(platform)
    [question] = await open_interrupts(platform, key)
    shown = call_of(question)
    assert (question.kind, shown.name, shown.args) == ("approval", "effects.charge", {"what": "a"})
    assert effects.done() == []

    await say(platform, key, question, YES)
    stream = await platform.finish(key)

    assert stream.status == "succeeded"
    assert effects.done() == ["charge a"]
    kinds = [kind for kind in stream.kinds if kind in ("tool_start", "approval_required", "tool_result")]
    assert kinds == ["tool_start", "approval_required", "tool_result"]
    assert stream.of("approval_required")[0]["call"]["call_id"] == stream.of("tool_result")[0]["call_id"]
    assert len(platform.model.requests) == 4


@pytest.mark.parametrize("answer", [{"approved": False, "note": "too much"}, None], ids=["refused", "cancelled"])
async def test_refused_call_is_not_made_and_the_agent_continues(
    platform: Platform, script: ScriptedModel, effects: EffectRecorder, answer: dict[str, Any] | None
) -> None:
    one_task(script, CHARGE, calls(("read_it", {"what": "a"})))
    key = await begun(platform)
    [question] = await open_interrupts(platform, key)

    await say(platform, key, question, answer)
    stream = await platform.finish(key)

    assert stream.status == "succeeded"
    assert effects.done() == ["read_it a"]
    refused, read = stream.of("tool_result")
    assert (refused["status"], read["status"]) == ("failed", "succeeded")
    assert ("too much" if answer else "withdrawn") in refused["result"]


@pytest.mark.parametrize("renewed", [False, True], ids=["in one task", "in a task that is given anew"])
async def test_reason_of_a_refusal_is_in_the_reply_when_the_agent_fails_at_a_later_call(
    platform: Platform, script: ScriptedModel, effects: EffectRecorder, renewed: bool
) -> None:
    given = decision(task("t1", AGENT))
    script.supervisor(given, *([given] if renewed else []), decision())
    script.agent("t1", CHARGE, calls(("no_such_tool", {})))
    key = await begun(platform)
    [question] = await open_interrupts(platform, key)

    await say(platform, key, question, {"approved": False, "note": "not on a Friday"})
    stream = await platform.finish(key)

    [degraded] = (await platform.result(key)).degraded
    assert (stream.status, effects.done()) == ("failed", [])
    refusal = "The call of effects.charge was refused: not on a Friday. The tool was not called."
    assert degraded.reason == f"{refusal} no_such_tool failed: There is no tool 'no_such_tool'."
    assert refusal in stream.of("task_result")[0]["summary"]
    assert "not on a Friday" in stream.reply


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_calls_of_one_answer_are_approved_separately_in_any_order(
    platform: Platform, script: ScriptedModel, effects: EffectRecorder, order: tuple[int, int]
) -> None:
    one_task(script, calls(("charge", {"what": "a"}), ("charge", {"what": "b"}), ("put", {"what": "c"})))
    key = await begun(platform)
    asked = await open_interrupts(platform, key)
    assert sorted(call_of(question).args["what"] for question in asked) == ["a", "b"]
    assert effects.done() == ["put c"]

    for number, which in enumerate(order, start=1):
        await say(platform, key, asked[which], YES)
        await execute_run(platform, key)
        assert len(effects.done()) == 1 + number

    stream = await platform.stream(key)
    assert stream.status == "succeeded"
    assert sorted(effects.done()) == ["charge a", "charge b", "put c"]
    assert len(stream.of("approval_required")) == 2


async def test_calls_of_concurrent_tasks_are_approved_together(
    platform: Platform, script: ScriptedModel, effects: EffectRecorder
) -> None:
    script.supervisor(decision(task("t1", AGENT), task("t2", AGENT), task("t3", AGENT)))
    for number, tool in ((1, "charge"), (2, "charge"), (3, "put")):
        script.agent(f"t{number}", calls((tool, {"what": f"{number}"})))
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("Done [1]."))
    key = await begun(platform)
    asked = await open_interrupts(platform, key)
    assert sorted(call_of(question).task_id for question in asked) == ["t1", "t2"]
    before = [result["task_id"] for result in (await told_so_far(platform, key)) if result["type"] == "task_result"]
    assert before == ["t3"]

    answers = [InterruptAnswer(question.id, "resolved", YES) for question in asked]
    await platform.services.runs.interrupts.answer(key, answers, "me")
    stream = await platform.finish(key)

    assert stream.status == "succeeded"
    assert sorted(effects.done()) == ["charge 1", "charge 2", "put 3"]
    assert len(stream.of("task_start")) == len(stream.of("task_result")) == 3
    assert len(platform.model.requests) == 1 + 3 + 3 + 1


async def told_so_far(platform: Platform, key: RunKey) -> list[dict[str, Any]]:
    return [{"type": event.type, **event.data} for event in await platform.services.runs.reader.events(key)]


async def test_answer_given_before_the_run_is_suspended_is_applied(
    platform: Platform, script: ScriptedModel, effects: EffectRecorder
) -> None:
    one_task(script, calls(("charge", {"what": "a"}), ("read_it", {"what": "b", "stall": "before", "gate": "gate"})))
    key = await platform.accept("Do it.")
    life = asyncio.get_running_loop().create_task(execute_run(platform, key))
    await effects.until("arrived", "b")
    await wait_for_event(platform, key, "approval_required")
    [asked] = await open_interrupts(platform, key)

    await say(platform, key, asked, YES)
    effects.open("gate")
    await life

    assert (await platform.services.runs.documents.row(key)).status is RunStatus.QUEUED
    assert (await platform.finish(key)).status == "succeeded"
    assert sorted(effects.done()) == ["charge a", "read_it b"]


async def test_approved_call_is_made_once_after_a_crash_that_follows_the_approval(
    platform: Platform, script: ScriptedModel, effects: EffectRecorder
) -> None:
    one_task(script, calls(("put", {"what": "x"}), ("charge", {"what": "a"})))
    key = await begun(platform)
    [question] = await open_interrupts(platform, key)
    await say(platform, key, question, YES)
    async with platform.executing(key):
        await effects.until("done", "a")

    await execute_run(platform, key)

    assert effects.done().count("charge a") == 1
    for doubt in await open_interrupts(platform, key):  # it may have ended before its result was stored
        assert doubt.kind == "in_doubt"
        await say(platform, key, doubt, {"resolution": "done", "result": "fine"})
        await execute_run(platform, key)
    assert (await platform.stream(key)).status == "succeeded"
    assert effects.done() == ["put x", "charge a"]


async def test_call_approved_under_a_former_policy_is_made(
    opened: Open, script: ScriptedModel, effects: EffectRecorder
) -> None:
    one_task(script, calls(("read_it", {"what": "a"})))
    async with opened(servers={"effects": effects.as_server(approval="always")}) as platform:
        key = await begun(platform)
        [question] = await open_interrupts(platform, key)
        assert call_of(question).name == "effects.read_it"

    async with opened(servers={"effects": effects.as_server()}) as platform:
        await platform.services.runs.leases.sweep(grace_seconds=0, lease_seconds=60)
        await platform.services.runs.interrupts.answer(key, [InterruptAnswer(question.id, "resolved", YES)], "me")
        stream = await platform.finish(key)

    assert stream.status == "succeeded"
    assert effects.done() == ["read_it a"]


async def test_resumed_task_fails_its_approved_call_when_the_server_is_switched_off(
    opened: Open, script: ScriptedModel, effects: EffectRecorder
) -> None:
    one_task(script, calls(("put", {"what": "x"}), ("charge", {"what": "a"})))
    servers = {"effects": effects.as_server(approval="unsafe")}
    async with opened(servers=servers) as platform:
        key = await begun(platform)
        [question] = await open_interrupts(platform, key)
        await platform.services.storage.switches.off(Target("server", "effects"), "It burns.", Actor.local("test"))

    async with opened(servers=servers) as platform:
        await say(platform, key, question, YES)
        stream = await platform.finish(key)
        rows = await LedgerReader(platform.services.storage.engine).calls(key)

    assert effects.done() == ["put x"]
    results = {result["call_id"]: result["status"] for result in stream.of("tool_result")}
    assert results == {"t1.0.0": "succeeded", "t1.0.1": "failed"}
    assert {row.state for row in rows} == {"succeeded", "failed"}


async def test_run_that_waited_for_a_year_continues_after_old_data_was_pruned(
    platform: Platform, script: ScriptedModel, effects: EffectRecorder, database_url: str
) -> None:
    one_task(script, calls(("read_it", {"what": "a"}), ("charge", {"what": "a"})))
    key = await begun(platform)
    [question] = await open_interrupts(platform, key)
    await platform.services.runs.cancellation.cancel(await platform.accept("another", thread="another"))
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        for column in ("created_at", "started_at", "ended_at"):
            await connection.execute(f"UPDATE runs SET {column} = {column} - interval '1 year'".encode())  # noqa: S608
        for table in ("events", "steps", "journal", "ledger", "interrupts", "audit", "audit_events"):
            aged = f"UPDATE {table} SET created_at = created_at - interval '1 year'"  # noqa: S608
            await connection.execute(aged.encode())

    pruned = await Retention(platform.services.storage.engine).prune(PruneSelection(timedelta(days=30), audit=True))
    await platform.services.storage.epochs.close_unheld()
    await say(platform, key, question, YES)
    stream = await platform.finish(key)

    assert pruned.runs == 1
    assert (stream.status, "gap" in stream.kinds) == ("succeeded", False)
    assert sorted(effects.done()) == ["charge a", "read_it a"]
    assert len(platform.model.requests) == 4


@rounds(5, soak=50)
async def test_approval_given_three_times_concurrently_has_one_effect(
    platform: Platform, script: ScriptedModel, effects: EffectRecorder, rounds: int
) -> None:
    script.supervisor(decision(task("t1", AGENT)))
    script.agent("t1", *(calls(("charge", {"what": f"{number}"})) for number in range(rounds)))
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("Done [1]."))

    for number in range(rounds):
        key = await platform.accept("Do it.", thread=f"thread-{number}")
        await execute_run(platform, key)
        [question] = await open_interrupts(platform, key)
        said = [say(platform, key, question, YES) for _ in range(3)]
        await asyncio.gather(*said)
        assert (await platform.finish(key)).status == "succeeded"

    assert sorted(effects.done()) == sorted(f"charge {number}" for number in range(rounds))
    assert len({line["key"] for line in effects.lines("done")}) == rounds
