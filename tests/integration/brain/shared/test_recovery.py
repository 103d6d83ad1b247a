"""A run that is interrupted goes on where it was: nothing is asked, done or told twice."""

import json

import pytest
from psycopg import AsyncConnection

from starling.core.errors import LeaseLostError
from tests.support.gateway_harness import call
from tests.support.interrupted_runs import wait_for_event
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

pytestmark = pytest.mark.asyncio(loop_scope="module")

LOOK = calls(("look", {"thing": "disk"}))


def told_once(stream: RunStream) -> bool:
    """Whether no event but text for the user is there twice."""
    events = [json.dumps(dict(event.data), sort_keys=True) for event in stream.events if event.type != "thinking"]
    return len(events) == len(set(events))


def distinct(bodies: list[Body]) -> int:
    return len({json.dumps(body["messages"]) for body in bodies})


async def test_crash_in_qa_repeats_only_the_qa_model_call(
    platform: Platform, script: ScriptedModel, workbench: Workbench
) -> None:
    script.supervisor(decision(task("t1", SHOP)))
    script.agent("t1", calls(("change", {"thing": "door"})))
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("Half an answer", hold="for ever", hold_after=2), Answer("A whole answer [1]."))
    key = await platform.accept("Change the door.")
    async with platform.executing(key):
        await wait_for_event(platform, key, "thinking")

    stream = await platform.finish(key)

    assert (stream.status, stream.reply) == ("succeeded", "A whole answer [1].")
    assert len(platform.model.requests) == 3 + 2
    assert workbench.done() == ["change door"]
    assert told_once(stream)
    assert len({part["message_id"] for part in stream.of("thinking")}) == 2


async def test_crash_after_the_last_node_repeats_at_most_the_last_model_call(
    platform: Platform, script: ScriptedModel, module_database_url: str
) -> None:
    script.run(decision(task("t1", BENCH)), t1=LOOK, qa=Answer("Fine [1]."))
    key = await platform.accept("How is the disk?")
    async with locked("branches", module_database_url), platform.executing(key):
        await wait_for_lock_waiter(module_database_url)

    stream = await platform.finish(key)

    assert (stream.status, stream.reply) == ("succeeded", "Fine [1].")
    assert distinct(platform.model.bodies) == 4
    assert len(platform.model.requests) <= 5
    assert told_once(stream)


async def test_interrupted_second_attempt_is_reported_once(platform: Platform, script: ScriptedModel) -> None:
    script.supervisor(decision(task("t1", BENCH)))
    script.agent("t1", LOOK, Answer("", hold="for ever"), LOOK)
    script.reviewer(verdict("REJECTED", "Look again."), verdict("APPROVED"))
    script.qa(Answer("Fine [1]."))
    key = await platform.accept("How is the disk?")
    async with platform.executing(key):
        await wait_for_event(platform, key, "task_start", 2)

    stream = await platform.finish(key)

    assert stream.status == "succeeded"
    assert told_once(stream)


@pytest.mark.parametrize("unreadable", ["garbage", ""])
async def test_unreadable_decision_is_reported_and_requested_once_despite_a_crash(
    platform: Platform, script: ScriptedModel, unreadable: str
) -> None:
    script.supervisor(Answer(unreadable), Answer("", hold="for ever"), decision(reply="Hello."))
    key = await platform.accept("Hi.")
    async with platform.executing(key):
        await wait_for_event(platform, key, "warning")
        await platform.model.received(2)

    stream = await platform.finish(key)

    assert (stream.reply, stream.codes) == ("Hello.", ["llm_invalid_response"])
    assert len(platform.model.requests) == 3


async def test_finished_task_is_not_repeated_when_a_concurrent_task_was_interrupted(
    platform: Platform, script: ScriptedModel, workbench: Workbench
) -> None:
    script.supervisor(decision(task("t1", SHOP), task("t2", BENCH)))
    script.agent("t1", calls(("change", {"thing": "door"})))
    script.agent("t2", Answer("", hold="for ever"), LOOK)
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("Done [1][2]."))
    key = await platform.accept("Change the door and look at the disk.")
    async with platform.executing(key):
        await wait_for_event(platform, key, "task_result")

    stream = await platform.finish(key)

    assert stream.status == "succeeded"
    assert workbench.done() == ["change door", "look disk"]
    assert len(platform.requests_containing('<task id="t1">')) == 1
    assert told_once(stream)


async def test_interrupted_read_is_repeated(platform: Platform, script: ScriptedModel, workbench: Workbench) -> None:
    script.supervisor(decision(task("t1", BENCH)))
    script.agent("t1", calls(("look", {"thing": "disk"}), ("wait", {"place": "interrupted read"})))
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("Fine [1]."))
    key = await platform.accept("Look and wait.")
    async with platform.executing(key):
        await wait_for_event(platform, key, "tool_result")
    await open_gate(platform, "interrupted read")

    stream = await platform.finish(key)

    assert stream.status == "succeeded"
    assert workbench.done().count("look disk") == 1
    assert len(platform.requests_containing('<task id="t1">')) == 1
    assert told_once(stream)


async def test_task_whose_journal_diverged_fails(
    platform: Platform, script: ScriptedModel, module_database_url: str
) -> None:
    script.supervisor(decision(task("t1", SHOP)), decision())
    script.agent("t1", calls(("change", {"thing": "door"})))  # its answer is stored before the call
    script.reviewer(Answer("", hold="for ever"), verdict("APPROVED"))
    script.qa(Answer("It couldn't be done."))
    key = await platform.accept("How is the disk?")
    async with platform.executing(key):
        await platform.model.received(3)
    async with await AsyncConnection.connect(module_database_url, autocommit=True) as connection:
        await connection.execute("UPDATE journal SET request_hash = 'other' WHERE path = 't1' AND kind = 'answer'")

    stream = await platform.finish(key)

    (warning,) = stream.of("warning")
    assert warning["code"] == "journal_diverged"
    assert "The step was stopped, and nothing that it did is repeated. The run goes on" in warning["message"]
    assert "What would help: a new request for what is missing" in stream.reply
    assert stream.of("task_result")[0]["status"] == "failed"
    assert len(platform.requests_containing('<task id="t1">')) == 1


@pytest.mark.parametrize(
    ("path", "then", "reply"),
    [
        ("supervisor/2", "Nothing more is planned: the run answers with the results so far.", "It is fine [1]."),
        ("qa/1", "The results are shown as they are.", "the disk is fine"),
    ],
)
async def test_diverged_decision_and_answer_say_what_the_run_does_now(
    platform: Platform, script: ScriptedModel, module_database_url: str, path: str, then: str, reply: str
) -> None:
    held = Answer("", hold="for ever")
    plan = decision(task("t1", BENCH), task("t2", BENCH, "Do what nobody can."))
    script.supervisor(plan, decision() if path == "qa/1" else held, decision())
    script.agent("t1", calls(("look", {"thing": "disk"})), Answer("The disk is fine."))
    script.agent("t2", Answer("I can't do that."))
    script.reviewer(verdict("APPROVED"))
    script.qa(held if path == "qa/1" else Answer("It is fine [1]."))
    key = await platform.accept("How is the disk?")
    async with platform.executing(key):
        await wait_for_event(platform, key, "task_result", 2)
    async with await AsyncConnection.connect(module_database_url, autocommit=True) as connection:
        await connection.execute(
            "INSERT INTO journal (tenant, run_id, path, kind, position, index, request_hash, data)"
            """ VALUES (%s, %s, %s, 'answer', 0, 0, 'other', '{"usage": {}}')""",
            (key.tenant, key.id, path),
        )

    stream = await platform.finish(key)

    (warning,) = [event for event in stream.of("warning") if event["code"] == "journal_diverged"]
    assert warning["message"].endswith(f"The step was stopped, and nothing that it did is repeated. {then}")
    assert (stream.status, stream.reply.startswith(reply)) == ("succeeded", True)


async def test_worker_that_lost_the_run_stops_and_its_successor_answers(
    platform: Platform, script: ScriptedModel, module_database_url: str
) -> None:
    script.supervisor(Answer("", hold="first"), decision(reply="The second one's."))
    key = await platform.accept("Hi.")
    async with platform.executing(key) as life:
        await platform.model.received(1)
        async with await AsyncConnection.connect(module_database_url, autocommit=True) as connection:
            await connection.execute("UPDATE runs SET lease_until = now() - interval '1 second'")
        stream = await platform.finish(key)
        platform.model.release("first")
        with pytest.raises(LeaseLostError):
            await life

    assert stream.reply == "The second one's."
    assert await platform.stream(key) == stream


async def test_usage_is_summed_over_all_executions(platform: Platform, script: ScriptedModel) -> None:
    script.supervisor(decision(task("t1", BENCH)))
    script.agent("t1", LOOK)
    script.reviewer(Answer("", hold="for ever"), verdict("APPROVED"))
    script.qa(Answer("Fine [1]."))
    key = await platform.accept("How is the disk?")
    async with platform.executing(key):
        await platform.model.received(3)

    stream = await platform.finish(key)

    assert stream.done["usage"] == {
        "tokens": 4 * 18,
        "input_tokens": 4 * 11,
        "output_tokens": 4 * 7,
        "model_calls": 4,
        "tool_calls": 1,
    }


# An answer that calls no tool is durable by the end of its task, or with the flush that comes by before: a crash in the
# review of a text may ask for both again.
@pytest.mark.parametrize(
    ("requests", "asked_again"), [(1, {1}), (2, {1}), (3, {1}), (4, {1}), (5, {1, 2}), (6, {1})], ids=range(1, 7)
)
async def test_run_survives_a_crash_at_each_model_call(
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

    stream = await platform.finish(key)

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
