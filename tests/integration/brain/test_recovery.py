"""A run that is interrupted goes on where it was: nothing is asked, done or told twice."""

import json

import pytest
from psycopg import AsyncConnection

from starling.core.errors import LeaseLostError
from starling.infra.postgres.runs.acceptance import RunKey
from tests.support.gateway_harness import call
from tests.support.interrupted_runs import answer_interrupts, execute_run, wait_until_noted
from tests.support.model_script import Answer, Body
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
from tests.support.run_factories import locked, wait_for_lock_waiter

LOOK = calls(("look", {"thing": "disk"}))


async def seen(platform: Platform, key: RunKey, kind: str, count: int = 1) -> None:
    """Return when the run's stream has so many durable events of a kind."""
    async for event in platform.services.reader.follow(key):
        count -= event.type == kind
        if count == 0:
            return


async def go(platform: Platform, key: RunKey) -> RunStream:
    """Finish a run that was interrupted."""
    return await platform.finish(key)


def told_once(stream: RunStream) -> bool:
    """Whether no event but text for the user is there twice."""
    events = [json.dumps(dict(event.data), sort_keys=True) for event in stream.events if event.type != "thinking"]
    return len(events) == len(set(events))


def distinct(bodies: list[Body]) -> int:
    return len({json.dumps(body["messages"]) for body in bodies})


async def test_nothing_is_asked_again_after_a_crash_in_qa(
    platform: Platform, script: ScriptedModel, workbench: Workbench
) -> None:
    script.supervisor(decision(task("t1", SHOP)))
    script.agent("t1", calls(("change", {"thing": "door"})))
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("Half an answer", hold="for ever", hold_after=2), Answer("A whole answer [1]."))
    key = await platform.accept("Change the door.")
    async with platform.executing(key):
        await seen(platform, key, "thinking")

    stream = await go(platform, key)

    assert (stream.status, stream.reply) == ("succeeded", "A whole answer [1].")
    assert len(platform.model.requests) == 3 + 2
    assert workbench.done() == ["change door"]
    assert told_once(stream)
    assert len({part["message_id"] for part in stream.of("thinking")}) == 2


async def test_a_crash_between_the_last_node_and_the_end_asks_for_no_more_than_the_last_answer_again(
    platform: Platform, script: ScriptedModel, database_url: str
) -> None:
    script.supervisor(decision(task("t1", BENCH)))
    script.agent("t1", LOOK)
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("Fine [1]."))
    key = await platform.accept("How is the disk?")
    async with locked("branches", database_url), platform.executing(key):
        await wait_for_lock_waiter(database_url)

    stream = await go(platform, key)

    assert (stream.status, stream.reply) == ("succeeded", "Fine [1].")
    assert distinct(platform.model.bodies) == 4
    assert len(platform.model.requests) <= 5
    assert told_once(stream)


async def test_a_crash_before_the_first_checkpoint_starts_over(platform: Platform, script: ScriptedModel) -> None:
    script.supervisor(Answer("", hold="for ever"), decision(reply="Hello."))
    key = await platform.accept("Hi.")
    async with platform.executing(key):
        await platform.model.received(1)

    stream = await go(platform, key)

    assert (stream.status, stream.reply) == ("succeeded", "Hello.")
    assert told_once(stream)


async def test_a_crash_in_the_review_asks_only_the_review_again(
    platform: Platform, script: ScriptedModel, workbench: Workbench
) -> None:
    script.supervisor(decision(task("t1", SHOP)))
    script.agent("t1", calls(("change", {"thing": "door"})))
    script.reviewer(Answer("", hold="for ever"), verdict("APPROVED"))
    script.qa(Answer("Changed [1]."))
    key = await platform.accept("Change the door.")
    async with platform.executing(key):
        await platform.model.received(3)

    stream = await go(platform, key)

    assert stream.status == "succeeded"
    assert distinct(platform.model.bodies) == len(platform.model.requests) - 1 == 4
    assert workbench.done() == ["change door"]
    assert told_once(stream)


async def test_a_second_attempt_that_was_begun_is_told_once(platform: Platform, script: ScriptedModel) -> None:
    script.supervisor(decision(task("t1", BENCH)))
    script.agent("t1", LOOK, Answer("", hold="for ever"), LOOK)
    script.reviewer(verdict("REJECTED", "Look again."), verdict("APPROVED"))
    script.qa(Answer("Fine [1]."))
    key = await platform.accept("How is the disk?")
    async with platform.executing(key):
        await seen(platform, key, "task_start", 2)

    stream = await go(platform, key)

    assert stream.status == "succeeded"
    assert told_once(stream)


async def test_a_repaired_decision_is_not_warned_of_again(platform: Platform, script: ScriptedModel) -> None:
    script.supervisor(Answer("garbage"), Answer("", hold="for ever"), decision(reply="Hello."))
    key = await platform.accept("Hi.")
    async with platform.executing(key):
        await seen(platform, key, "warning")

    stream = await go(platform, key)

    assert (stream.reply, stream.codes) == ("Hello.", ["llm_invalid_response"])


async def test_a_decision_that_could_not_be_read_is_not_asked_for_again(
    platform: Platform, script: ScriptedModel
) -> None:
    script.supervisor(Answer(""), Answer("", hold="for ever"), decision(reply="Hello."))
    key = await platform.accept("Hi.")
    async with platform.executing(key):
        await seen(platform, key, "warning")
        await platform.model.received(2)

    stream = await go(platform, key)

    assert (stream.reply, stream.codes) == ("Hello.", ["llm_invalid_response"])
    assert len(platform.model.requests) == 3


async def test_a_finished_task_is_not_run_again_because_its_sibling_was_not_finished(
    platform: Platform, script: ScriptedModel, workbench: Workbench
) -> None:
    script.supervisor(decision(task("t1", SHOP), task("t2", BENCH)))
    script.agent("t1", calls(("change", {"thing": "door"})))
    script.agent("t2", Answer("", hold="for ever"), LOOK)
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("Done [1][2]."))
    key = await platform.accept("Change the door and look at the disk.")
    async with platform.executing(key):
        await seen(platform, key, "task_result")

    stream = await go(platform, key)

    assert stream.status == "succeeded"
    assert workbench.done() == ["change door", "look disk"]
    assert len(platform.requests_containing('<task id="t1">')) == 1
    assert told_once(stream)


async def test_a_read_that_was_interrupted_is_made_again(
    platform: Platform, script: ScriptedModel, workbench: Workbench
) -> None:
    script.supervisor(decision(task("t1", BENCH)))
    script.agent("t1", calls(("look", {"thing": "disk"}), ("wait", {"place": "interrupted read"})))
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("Fine [1]."))
    key = await platform.accept("Look and wait.")
    async with platform.executing(key):
        await seen(platform, key, "tool_result")
    await open_gate(platform, "interrupted read")

    stream = await go(platform, key)

    assert stream.status == "succeeded"
    assert workbench.done().count("look disk") == 1
    assert len(platform.requests_containing('<task id="t1">')) == 1
    assert told_once(stream)


async def test_a_change_that_was_interrupted_is_never_made_again(
    platform: Platform, script: ScriptedModel, workbench: Workbench
) -> None:
    script.supervisor(decision(task("t1", SHOP)), decision())
    script.agent("t1", calls(("wait", {"place": "interrupted change"})))
    script.qa(Answer("Nobody knows whether it happened."))
    key = await platform.accept("Wait in the shop.")
    async with platform.executing(key):
        await wait_until_noted("wait interrupted change", workbench.done)
    await execute_run(platform, key)
    await answer_interrupts(platform, key, resolution="give_up")

    stream = await go(platform, key)

    (result,) = stream.of("task_result")
    assert result["status"] == "failed"
    assert "whether it took effect is unknown" in result["summary"]
    assert stream.codes == ["outcome_unknown"]
    assert len(platform.requests_containing('<task id="t1">')) == 1
    assert workbench.done().count("wait interrupted change") == 1
    assert told_once(stream)


async def test_a_task_that_would_ask_something_else_now_stops(
    platform: Platform, script: ScriptedModel, database_url: str
) -> None:
    script.supervisor(decision(task("t1", SHOP)), decision())
    script.agent("t1", calls(("change", {"thing": "door"})))  # its answer is stored before the call
    script.reviewer(Answer("", hold="for ever"), verdict("APPROVED"))
    script.qa(Answer("It couldn't be done."))
    key = await platform.accept("How is the disk?")
    async with platform.executing(key):
        await platform.model.received(3)
    async with await AsyncConnection.connect(database_url, autocommit=True) as connection:
        await connection.execute("UPDATE journal SET request_hash = 'other' WHERE path = 't1' AND kind = 'answer'")

    stream = await go(platform, key)

    assert stream.codes == ["journal_diverged"]
    assert stream.of("task_result")[0]["status"] == "failed"
    assert len(platform.requests_containing('<task id="t1">')) == 1


async def test_a_worker_that_lost_the_run_stops_and_the_other_one_answers(
    platform: Platform, script: ScriptedModel, database_url: str
) -> None:
    script.supervisor(Answer("", hold="first"), decision(reply="The second one's."))
    key = await platform.accept("Hi.")
    async with platform.executing(key) as life:
        await platform.model.received(1)
        async with await AsyncConnection.connect(database_url, autocommit=True) as connection:
            await connection.execute("UPDATE runs SET lease_until = now() - interval '1 second'")
        stream = await platform.finish(key)
        platform.model.release("first")
        with pytest.raises(LeaseLostError):
            await life

    assert stream.reply == "The second one's."
    assert await platform.stream(key) == stream


async def test_usage_is_counted_over_all_lives(platform: Platform, script: ScriptedModel) -> None:
    script.supervisor(decision(task("t1", BENCH)))
    script.agent("t1", LOOK)
    script.reviewer(Answer("", hold="for ever"), verdict("APPROVED"))
    script.qa(Answer("Fine [1]."))
    key = await platform.accept("How is the disk?")
    async with platform.executing(key):
        await platform.model.received(3)

    stream = await go(platform, key)

    assert (stream.done["usage"]["model_calls"], stream.done["usage"]["tool_calls"]) == (4, 1)


# An answer that calls no tool is durable by the end of its task, or with the flush that comes by before: a crash in the
# review of a text may ask for both again.
@pytest.mark.parametrize(
    ("requests", "asked_again"), [(1, {1}), (2, {1}), (3, {1}), (4, {1}), (5, {1, 2}), (6, {1})], ids=range(1, 7)
)
async def test_a_run_survives_a_crash_at_every_model_call(
    platform: Platform, script: ScriptedModel, workbench: Workbench, requests: int, asked_again: set[int]
) -> None:
    script.held = True
    script.supervisor(decision(task("t1", SHOP), task("t2", "generalist", after=["t1"])))
    script.agent("t1", calls(("change", {"thing": "door"})))
    script.agent("t2", Answer("Nice."))
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("Changed [1], nice [2]."))
    key = await platform.accept("Change the door and comment.")
    async with platform.executing(key):
        for number in range(1, requests + 1):
            await platform.model.received(number)
            if number < requests:
                platform.model.release(str(number))
    script.held = False

    stream = await go(platform, key)

    assert stream.reply == "Changed [1], nice [2]."
    assert len(platform.model.requests) - 6 in asked_again
    assert workbench.done() == ["change door"]
    assert told_once(stream)


async def open_gate(platform: Platform, place: str) -> None:
    """Let go whoever waits at a place of the workbench."""
    listing = platform.worker_runtime.gateway.listing("bench")
    assert listing is not None
    outcome = await call(platform.worker_runtime.gateway, listing, "go", place=place)
    assert outcome.status == "succeeded"
