"""A run that somebody cancels ends once, with nothing left open, and its thread goes on."""

import asyncio
import random
from contextlib import suppress
from typing import Any

import pytest
from psycopg import AsyncConnection

from starling.core.errors import ConflictError, LeaseLostError
from starling.core.ids import new_id
from starling.core.runs import RunResult, RunStatus
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.interrupts import InterruptAnswer
from tests.integration.brain.conftest import Open
from tests.support.gateway_harness import wait_for
from tests.support.interrupted_runs import wait_for_event
from tests.support.model_script import Answer, Rule, When
from tests.support.platform import (
    BENCH,
    SHOP,
    Platform,
    RunStream,
    ScriptedModel,
    Workbench,
    calls,
    decision,
    task,
    verdict,
)
from tests.support.soak import rounds
from tests.support.worker_runtime import running_worker

CANCELLED = RunStatus.CANCELLED
QUESTION = decision(question="Which disk?", options=["the first", "the second"])


async def cancelled(platform: Platform, key: RunKey, life: asyncio.Task[RunResult | None]) -> RunStream:
    """Cancel a run that is worked on and wait for its end."""
    assert await platform.services.runs.cancellation.cancel(key) in (RunStatus.RUNNING, CANCELLED)
    await life
    return await platform.stream(key)


def degraded_lines(stream: RunStream) -> set[str]:
    """The tool calls and tasks that were announced and never answered, or answered more than once."""
    started = [call["call_id"] for call in stream.of("tool_start")] + [item["path"] for item in stream.of("task_start")]
    answered = [call["call_id"] for call in stream.of("tool_result")] + [
        item["path"] for item in stream.of("task_result")
    ]
    return set(started) ^ set(answered) if len(answered) == len(set(answered)) else set(answered)


async def rows(url: str, query: str) -> list[tuple[object, ...]]:
    async with await AsyncConnection.connect(url, autocommit=True) as connection:
        cursor = await connection.execute(query.encode())
        return await cursor.fetchall() if cursor.description else []


async def goes_on(platform: Platform, script: ScriptedModel) -> bool:
    """Whether the thread takes another turn, which is told what became of the last one."""
    asked = len(platform.model.requests)
    script.rules.clear()
    script.supervisor(decision(reply="Here I am."))
    stream = await platform.ask("And now?")
    return stream.reply == "Here I am." and "The run was cancelled." in str(platform.model.bodies[asked])


async def test_cancelled_queued_run_ends_at_once(platform: Platform, script: ScriptedModel) -> None:
    key = await platform.accept("Hi.")

    status = await platform.services.runs.cancellation.cancel(key)

    stream = await platform.stream(key)
    assert (status, stream.kinds) == (CANCELLED, ["run_started", "done"])
    assert (stream.status, stream.reply) == ("cancelled", "The run was cancelled.")
    assert platform.model.requests == []
    assert await goes_on(platform, script)


async def test_cancelled_run_in_the_middle_of_a_thread_leaves_the_others(
    platform: Platform, script: ScriptedModel
) -> None:
    script.supervisor(decision(reply="Hello."))
    first, second, third = [await platform.accept("Hi.") for _ in range(3)]

    assert await platform.services.runs.cancellation.cancel(second) is CANCELLED

    assert [(await platform.finish(key)).status for key in (first, third)] == ["succeeded", "succeeded"]


async def test_cancellation_ends_a_read_call_as_failed(platform: Platform, script: ScriptedModel) -> None:
    place = new_id()
    script.supervisor(decision(task("t1", BENCH)))
    script.agent("t1", calls(("look", {"thing": "disk"}), ("wait", {"place": place})))
    key = await platform.accept("Look and wait.")
    async with platform.executing(key) as life:
        await wait_for_event(platform, key, "tool_result")
        stream = await cancelled(platform, key, life)

    *_, answer = stream.of("tool_result")
    assert (answer["name"], answer["status"]) == ("bench.wait", "failed")
    assert answer["result"] == "The run was cancelled. The call was cut off."
    assert degraded_lines(stream) == set()
    assert f'bench.wait {{"place":"{place}"}}: The call was cut off.' in stream.reply
    assert await goes_on(platform, script)


async def test_cancellation_leaves_an_interrupted_unsafe_call_in_doubt(
    platform: Platform, script: ScriptedModel, workbench: Workbench, database_url: str
) -> None:
    place = new_id()
    script.supervisor(decision(task("t1", BENCH), task("t2", SHOP, after=["t1"])))
    script.agent("t1", calls(("look", {"thing": "disk"})))
    script.agent("t2", calls(("wait", {"place": place})))
    script.reviewer(verdict("APPROVED"))
    key = await platform.accept("Look, and wait in the shop.")
    async with platform.executing(key) as life:
        await wait_for_event(platform, key, "tool_start", 2)
        await wait_for(lambda: f"wait {place}" in workbench.done())
        stream = await cancelled(platform, key, life)

    *_, answer = stream.of("tool_result")
    assert answer["result"] == "The run was cancelled. Whether the call was done is unknown."
    assert await rows(database_url, "SELECT tool, state, settled_by, outcome ->> 'code' FROM ledger") == [
        ("shop.wait", "in_doubt", "cancelled", "cancelled")
    ]
    assert "Done before:\n- t1: the disk is fine" in stream.reply
    assert degraded_lines(stream) == set()
    assert await goes_on(platform, script)


async def test_result_of_an_approved_task_is_in_the_reply_of_a_cancelled_run(
    platform: Platform, script: ScriptedModel
) -> None:
    script.supervisor(decision(task("t1", BENCH), task("t2", BENCH)))
    script.agent("t1", calls(("look", {"thing": "disk"})))
    script.agent("t2", Answer("", hold="for ever"))
    script.reviewer(verdict("APPROVED"))
    key = await platform.accept("Look at two things.")
    async with platform.executing(key) as life:
        await wait_for_event(platform, key, "task_result")
        stream = await cancelled(platform, key, life)

    assert "Done before:\n- t1: the disk is fine" in stream.reply
    assert [(item["task_id"], item["status"], item["summary"]) for item in stream.of("task_result")] == [
        ("t1", "approved", "the disk is fine"),
        ("t2", "failed", "The run was cancelled."),
    ]
    assert stream.kinds[-2:] == ["task_result", "done"]
    assert degraded_lines(stream) == set()
    assert await goes_on(platform, script)


async def test_completed_change_of_an_unfinished_task_is_in_the_reply_of_a_cancelled_run(
    platform: Platform, script: ScriptedModel, workbench: Workbench
) -> None:
    place = new_id()
    script.supervisor(decision(task("t1", SHOP)))
    script.agent("t1", calls(("change", {"thing": "door"}), ("wait", {"place": place})))
    key = await platform.accept("Change the door and wait.")
    async with platform.executing(key) as life:
        await wait_for_event(platform, key, "tool_result")
        await wait_for(lambda: f"wait {place}" in workbench.done())
        stream = await cancelled(platform, key, life)

    first, *_ = stream.of("tool_result")
    assert (first["name"], first["status"]) == ("shop.change", "succeeded")
    assert (
        f'Changed already:\n- shop.change {{"thing":"door"}}: {first["result"]}\nCut off:\n- shop.wait' in stream.reply
    )
    assert await goes_on(platform, script)


async def test_cancellation_interrupts_a_streamed_answer(platform: Platform, script: ScriptedModel) -> None:
    script.supervisor(decision(task("t1", BENCH)))
    script.agent("t1", calls(("look", {"thing": "disk"})))
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("Half an answer", hold="for ever", hold_after=2))
    key = await platform.accept("How is the disk?")
    async with platform.executing(key) as life:
        await wait_for_event(platform, key, "thinking")
        stream = await cancelled(platform, key, life)

    assert stream.status == "cancelled"
    assert "the disk is fine" in stream.reply
    assert (stream.done["usage"]["model_calls"], stream.done["usage"]["tool_calls"]) == (3, 1)
    assert await goes_on(platform, script)


async def test_cancellation_closes_the_open_interrupts_of_a_run(
    platform: Platform, script: ScriptedModel, database_url: str
) -> None:
    script.supervisor(QUESTION)
    key = await platform.accept("Is the disk fine?")
    await platform.brain.execute(await platform.claim(key))
    (asked,) = await platform.services.runs.interrupts.waiting(key.tenant, run=key.id)

    status = await platform.services.runs.cancellation.cancel(key)

    assert status is CANCELLED
    assert await rows(database_url, "SELECT state FROM interrupts") == [("cancelled",)]
    assert (await platform.stream(key)).kinds[-2:] == ["clarification", "done"]
    with pytest.raises(ConflictError):
        await platform.services.runs.interrupts.answer(
            key, [InterruptAnswer(asked.id, "resolved", {"answer": "this"})], "me"
        )
    assert await goes_on(platform, script)


async def test_cancelled_run_does_not_make_a_call_that_waited_for_approval(
    opened: Open, script: ScriptedModel, workbench: Workbench, database_url: str
) -> None:
    shop = workbench.as_server("unsafe")
    shop["x-starling"]["approval"] = "unsafe"
    script.supervisor(decision(task("t1", SHOP)))
    script.agent("t1", calls(("change", {"thing": "door"})))
    async with opened(servers={"shop": shop}) as platform:
        key = await platform.accept("Change the door.")
        await platform.brain.execute(await platform.claim(key))

        assert await platform.services.runs.cancellation.cancel(key) is CANCELLED

        stream = await platform.stream(key)
    assert [result["result"] for result in stream.of("tool_result")] == [
        "The run was cancelled. The call was not made."
    ]
    assert workbench.done() == []
    assert await rows(database_url, "SELECT state FROM interrupts") == [("cancelled",)]


async def test_cancelled_run_of_a_dead_worker_ends_at_once_and_rejects_its_writes(
    platform: Platform, script: ScriptedModel, database_url: str
) -> None:
    script.supervisor(Answer("", hold="for ever"))
    key = await platform.accept("Hi.")
    async with platform.executing(key) as life:
        await platform.model.received(1)
        await rows(database_url, "UPDATE runs SET lease_until = now() - interval '1 second'")
        status = await platform.services.runs.cancellation.cancel(key)
        stream = await platform.stream(key)
        platform.model.release("for ever")
        with pytest.raises(LeaseLostError):
            await life

    assert (status, stream.status) == (CANCELLED, "cancelled")
    assert await platform.stream(key) == stream


async def test_cancellation_requested_between_two_executions_ends_the_run_without_a_model_call(
    platform: Platform, script: ScriptedModel, database_url: str
) -> None:
    script.supervisor(Answer("", hold="for ever"))
    key = await platform.accept("Hi.")
    async with platform.executing(key):
        await platform.model.received(1)
    await rows(database_url, "UPDATE runs SET cancel_requested = true")

    stream = await platform.finish(key)

    assert (stream.status, len(platform.model.requests)) == ("cancelled", 1)


async def test_cancellation_without_a_notification_is_applied_at_the_next_heartbeat(
    opened: Open, script: ScriptedModel, database_url: str
) -> None:
    script.supervisor(Answer("", hold="for ever"))
    async with opened(lease_seconds=1) as platform, running_worker(platform.worker_runtime.worker):
        key = await platform.accept("Hi.")
        await platform.model.received(1)
        await rows(database_url, "UPDATE runs SET cancel_requested = true")

        stream = await platform.stream(key)

    assert (stream.status, len(platform.model.requests)) == ("cancelled", 1)


async def test_cancelled_run_that_is_claimed_but_not_executing_ends_without_a_model_call(
    platform: Platform, script: ScriptedModel, database_url: str
) -> None:
    script.supervisor(Answer("", hold="for ever"))
    key = await platform.accept("Hi.")
    claim = await platform.claim(key)

    statuses = [await platform.services.runs.cancellation.cancel(key) for _ in range(2)]
    await platform.brain.execute(claim)

    assert statuses == [RunStatus.RUNNING] * 2
    assert (await platform.stream(key)).status == "cancelled"
    assert await rows(database_url, "SELECT status FROM runs") == [("cancelled",)]


async def test_concurrent_cancellations_end_a_run_once(platform: Platform) -> None:
    key = await platform.accept("Hi.")

    statuses = await asyncio.gather(*(platform.services.runs.cancellation.cancel(key) for _ in range(6)))

    assert CANCELLED in statuses
    assert (await platform.stream(key)).kinds == ["run_started", "done"]


@rounds(20, soak=200)
async def test_cancellation_concurrent_with_the_end_of_a_run_is_consistent(
    platform: Platform, script: ScriptedModel, workbench: Workbench, database_url: str, rounds: int
) -> None:
    dice = random.Random(7)
    script.run(decision(task("t1", SHOP)), t1=calls(("change", {"thing": "door"})), qa=Answer("Changed [1]."))
    await platform.ask("Change the door.")
    clock = asyncio.get_running_loop().time
    begun = clock()
    await platform.ask("Change the door.")
    seconds = 1.2 * (clock() - begun)

    async def race() -> RunStream:
        key = await platform.accept("Change the door.")
        await asyncio.sleep(dice.uniform(0, seconds))
        await platform.services.runs.cancellation.cancel(key)
        return await platform.stream(key)

    async with running_worker(platform.worker_runtime.worker):
        outcomes = [await race() for _ in range(rounds)]

    assert "cancelled" in {stream.status for stream in outcomes} <= {"succeeded", "cancelled"}
    assert [stream.kinds.count("done") for stream in outcomes] == [1] * rounds
    assert [degraded_lines(stream) for stream in outcomes] == [set()] * rounds
    assert await rows(database_url, "SELECT count(*) FROM runs WHERE ended_at IS NULL") == [(0,)]
    left = await rows(database_url, "SELECT key FROM ledger WHERE state <> 'intended'")
    assert len(workbench.done()) <= len(left)
    line = await rows(database_url, "SELECT position, length FROM states ORDER BY position")
    lengths: list[Any] = [length for _, length in line]
    assert [first for first, _ in line] == [1 + sum(lengths[:n]) for n in range(rounds + 2)]
    script.rules.clear()
    script.supervisor(decision(reply="Here I am."))
    assert (await platform.ask("And now?")).reply == "Here I am."


@rounds(10, soak=60)
async def test_cancellation_concurrent_with_a_question_and_its_answer_is_consistent(
    platform: Platform, script: ScriptedModel, database_url: str, rounds: int
) -> None:
    dice = random.Random(7)
    script.rules.append(Rule(decision(reply="Fine."), When(schema="supervisor_decision", contains="the blue one")))
    script.supervisor(QUESTION)

    async def answer(key: RunKey) -> None:
        for asked in await platform.services.runs.interrupts.waiting(key.tenant, run=key.id):
            said = InterruptAnswer(asked.id, "resolved", {"answer": "the blue one"})
            with suppress(ConflictError):
                await platform.services.runs.interrupts.answer(key, [said], "me")

    async def race(thread: str) -> RunStream:
        key = await platform.accept("Is the disk fine?", thread=thread)
        for _ in range(dice.randrange(4)):
            await asyncio.sleep(dice.uniform(0, 0.03))
            await answer(key)
        await asyncio.gather(answer(key), platform.services.runs.cancellation.cancel(key))
        return await platform.stream(key)

    async with running_worker(platform.worker_runtime.worker):
        outcomes = [await race(f"t{number}") for number in range(rounds)]

    assert {stream.status for stream in outcomes} <= {"cancelled", "succeeded"}
    assert [stream.kinds.count("done") for stream in outcomes] == [1] * rounds
    assert await rows(database_url, "SELECT state FROM interrupts WHERE state = 'open'") == []
    assert await rows(database_url, "SELECT status FROM runs WHERE ended_at IS NULL") == []
