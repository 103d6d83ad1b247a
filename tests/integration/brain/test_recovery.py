"""A run that is interrupted goes on where it was: nothing is asked, done or told twice."""

import json

import pytest
from psycopg import AsyncConnection

from starling.core.errors import LeaseLostError
from starling.infra.postgres.runs.acceptance import RunKey
from tests.support.gateway import call
from tests.support.model_script import Answer, Body
from tests.support.platform import BENCH, SHOP, ModelSays, Platform, Told, Workbench, calls, decision, task, verdict
from tests.support.runs import locked, waiting_for_a_lock
from tests.support.waiting import answer, live, until_there

LOOK = calls(("look", {"thing": "disk"}))


async def seen(platform: Platform, key: RunKey, kind: str, count: int = 1) -> None:
    """Return when the run's stream has so many durable events of a kind."""
    async for event in platform.services.reader.follow(key):
        count -= event.type == kind
        if count == 0:
            return


async def go(platform: Platform, key: RunKey) -> Told:
    """Finish a run that was interrupted."""
    return await platform.finish(key)


def told_once(told: Told) -> bool:
    """Whether no event but text for the user is there twice."""
    events = [json.dumps(dict(event.data), sort_keys=True) for event in told.events if event.type != "thinking"]
    return len(events) == len(set(events))


def distinct(bodies: list[Body]) -> int:
    return len({json.dumps(body["messages"]) for body in bodies})


async def test_nothing_is_asked_again_after_a_crash_in_qa(
    platform: Platform, says: ModelSays, workbench: Workbench
) -> None:
    says.supervisor(decision(task("t1", SHOP)))
    says.agent("t1", calls(("change", {"thing": "door"})))
    says.reviewer(verdict("APPROVED"))
    says.qa(Answer("Half an answer", hold="for ever", hold_after=2), Answer("A whole answer [1]."))
    key = await platform.accept("Change the door.")
    async with platform.living(key):
        await seen(platform, key, "thinking")

    told = await go(platform, key)

    assert (told.status, told.reply) == ("succeeded", "A whole answer [1].")
    assert len(platform.model.requests) == 3 + 2
    assert workbench.done() == ["change door"]
    assert told_once(told)
    assert len({part["message_id"] for part in told.of("thinking")}) == 2


async def test_a_crash_between_the_last_node_and_the_end_asks_for_no_more_than_the_last_answer_again(
    platform: Platform, says: ModelSays, database_url: str
) -> None:
    says.supervisor(decision(task("t1", BENCH)))
    says.agent("t1", LOOK)
    says.reviewer(verdict("APPROVED"))
    says.qa(Answer("Fine [1]."))
    key = await platform.accept("How is the disk?")
    async with locked("branches", database_url), platform.living(key):
        await waiting_for_a_lock(database_url)

    told = await go(platform, key)

    assert (told.status, told.reply) == ("succeeded", "Fine [1].")
    assert distinct(platform.model.bodies) == 4
    assert len(platform.model.requests) <= 5
    assert told_once(told)


async def test_a_crash_before_the_first_checkpoint_starts_over(platform: Platform, says: ModelSays) -> None:
    says.supervisor(Answer("", hold="for ever"), decision(reply="Hello."))
    key = await platform.accept("Hi.")
    async with platform.living(key):
        await platform.model.received(1)

    told = await go(platform, key)

    assert (told.status, told.reply) == ("succeeded", "Hello.")
    assert told_once(told)


async def test_a_crash_in_the_review_asks_only_the_review_again(
    platform: Platform, says: ModelSays, workbench: Workbench
) -> None:
    says.supervisor(decision(task("t1", SHOP)))
    says.agent("t1", calls(("change", {"thing": "door"})))
    says.reviewer(Answer("", hold="for ever"), verdict("APPROVED"))
    says.qa(Answer("Changed [1]."))
    key = await platform.accept("Change the door.")
    async with platform.living(key):
        await platform.model.received(3)

    told = await go(platform, key)

    assert told.status == "succeeded"
    assert distinct(platform.model.bodies) == len(platform.model.requests) - 1 == 4
    assert workbench.done() == ["change door"]
    assert told_once(told)


async def test_a_second_attempt_that_was_begun_is_told_once(platform: Platform, says: ModelSays) -> None:
    says.supervisor(decision(task("t1", BENCH)))
    says.agent("t1", LOOK, Answer("", hold="for ever"), LOOK)
    says.reviewer(verdict("REJECTED", "Look again."), verdict("APPROVED"))
    says.qa(Answer("Fine [1]."))
    key = await platform.accept("How is the disk?")
    async with platform.living(key):
        await seen(platform, key, "task_start", 2)

    told = await go(platform, key)

    assert told.status == "succeeded"
    assert told_once(told)


async def test_a_repaired_decision_is_not_warned_of_again(platform: Platform, says: ModelSays) -> None:
    says.supervisor(Answer("garbage"), Answer("", hold="for ever"), decision(reply="Hello."))
    key = await platform.accept("Hi.")
    async with platform.living(key):
        await seen(platform, key, "warning")

    told = await go(platform, key)

    assert (told.reply, told.codes) == ("Hello.", ["llm_invalid_response"])


async def test_a_decision_that_could_not_be_read_is_not_asked_for_again(platform: Platform, says: ModelSays) -> None:
    says.supervisor(Answer(""), Answer("", hold="for ever"), decision(reply="Hello."))
    key = await platform.accept("Hi.")
    async with platform.living(key):
        await seen(platform, key, "warning")
        await platform.model.received(2)

    told = await go(platform, key)

    assert (told.reply, told.codes) == ("Hello.", ["llm_invalid_response"])
    assert len(platform.model.requests) == 3


async def test_a_finished_task_is_not_run_again_because_its_sibling_was_not_finished(
    platform: Platform, says: ModelSays, workbench: Workbench
) -> None:
    says.supervisor(decision(task("t1", SHOP), task("t2", BENCH)))
    says.agent("t1", calls(("change", {"thing": "door"})))
    says.agent("t2", Answer("", hold="for ever"), LOOK)
    says.reviewer(verdict("APPROVED"))
    says.qa(Answer("Done [1][2]."))
    key = await platform.accept("Change the door and look at the disk.")
    async with platform.living(key):
        await seen(platform, key, "task_result")

    told = await go(platform, key)

    assert told.status == "succeeded"
    assert workbench.done() == ["change door", "look disk"]
    assert len(platform.asked('<task id="t1">')) == 1
    assert told_once(told)


async def test_a_read_that_was_interrupted_is_made_again(
    platform: Platform, says: ModelSays, workbench: Workbench
) -> None:
    says.supervisor(decision(task("t1", BENCH)))
    says.agent("t1", calls(("look", {"thing": "disk"}), ("wait", {"place": "interrupted read"})))
    says.reviewer(verdict("APPROVED"))
    says.qa(Answer("Fine [1]."))
    key = await platform.accept("Look and wait.")
    async with platform.living(key):
        await seen(platform, key, "tool_result")
    await open_gate(platform, "interrupted read")

    told = await go(platform, key)

    assert told.status == "succeeded"
    assert workbench.done().count("look disk") == 1
    assert len(platform.asked('<task id="t1">')) == 1
    assert told_once(told)


async def test_a_change_that_was_interrupted_is_never_made_again(
    platform: Platform, says: ModelSays, workbench: Workbench
) -> None:
    says.supervisor(decision(task("t1", SHOP)), decision())
    says.agent("t1", calls(("wait", {"place": "interrupted change"})))
    says.qa(Answer("Nobody knows whether it happened."))
    key = await platform.accept("Wait in the shop.")
    async with platform.living(key):
        await until_there("wait interrupted change", workbench.done)
    await live(platform, key)
    await answer(platform, key, resolution="give_up")

    told = await go(platform, key)

    (result,) = told.of("task_result")
    assert result["status"] == "failed"
    assert "its outcome is unknown" in result["summary"]
    assert told.codes == ["outcome_unknown"]
    assert len(platform.asked('<task id="t1">')) == 1
    assert workbench.done().count("wait interrupted change") == 1
    assert told_once(told)


async def test_a_task_that_would_ask_something_else_now_stops(
    platform: Platform, says: ModelSays, database_url: str
) -> None:
    says.supervisor(decision(task("t1", BENCH)), decision())
    says.agent("t1", LOOK)
    says.reviewer(Answer("", hold="for ever"), verdict("APPROVED"))
    says.qa(Answer("It couldn't be done."))
    key = await platform.accept("How is the disk?")
    async with platform.living(key):
        await platform.model.received(3)
    async with await AsyncConnection.connect(database_url, autocommit=True) as connection:
        await connection.execute("UPDATE journal SET request_hash = 'other' WHERE path = 't1' AND kind = 'answer'")

    told = await go(platform, key)

    assert told.codes == ["journal_diverged"]
    assert told.of("task_result")[0]["status"] == "failed"
    assert len(platform.asked('<task id="t1">')) == 1


async def test_a_worker_that_lost_the_run_stops_and_the_other_one_answers(
    platform: Platform, says: ModelSays, database_url: str
) -> None:
    says.supervisor(Answer("", hold="first"), decision(reply="The second one's."))
    key = await platform.accept("Hi.")
    async with platform.living(key) as life:
        await platform.model.received(1)
        async with await AsyncConnection.connect(database_url, autocommit=True) as connection:
            await connection.execute("UPDATE runs SET lease_until = now() - interval '1 second'")
        told = await platform.finish(key)
        platform.model.release("first")
        with pytest.raises(LeaseLostError):
            await life

    assert told.reply == "The second one's."
    assert await platform.told(key) == told


async def test_usage_is_counted_over_all_lives(platform: Platform, says: ModelSays) -> None:
    says.supervisor(decision(task("t1", BENCH)))
    says.agent("t1", LOOK)
    says.reviewer(Answer("", hold="for ever"), verdict("APPROVED"))
    says.qa(Answer("Fine [1]."))
    key = await platform.accept("How is the disk?")
    async with platform.living(key):
        await platform.model.received(3)

    told = await go(platform, key)

    assert (told.done["usage"]["model_calls"], told.done["usage"]["tool_calls"]) == (4, 1)


# An answer that calls no tool is durable by the end of its task, or with the flush that comes by before: a crash in the
# review of a text may ask for both again.
@pytest.mark.parametrize(
    ("requests", "asked_again"), [(1, {1}), (2, {1}), (3, {1}), (4, {1}), (5, {1, 2}), (6, {1})], ids=range(1, 7)
)
async def test_a_run_survives_a_crash_at_every_model_call(
    platform: Platform, says: ModelSays, workbench: Workbench, requests: int, asked_again: set[int]
) -> None:
    says.held = True
    says.supervisor(decision(task("t1", SHOP), task("t2", "generalist", after=["t1"])))
    says.agent("t1", calls(("change", {"thing": "door"})))
    says.agent("t2", Answer("Nice."))
    says.reviewer(verdict("APPROVED"))
    says.qa(Answer("Changed [1], nice [2]."))
    key = await platform.accept("Change the door and comment.")
    async with platform.living(key):
        for number in range(1, requests + 1):
            await platform.model.received(number)
            if number < requests:
                platform.model.release(str(number))
    says.held = False

    told = await go(platform, key)

    assert told.reply == "Changed [1], nice [2]."
    assert len(platform.model.requests) - 6 in asked_again
    assert workbench.done() == ["change door"]
    assert told_once(told)


async def open_gate(platform: Platform, place: str) -> None:
    """Let go whoever waits at a place of the workbench."""
    listing = platform.worker_runtime.gateway.listing("bench")
    assert listing is not None
    outcome = await call(platform.worker_runtime.gateway, listing, "go", place=place)
    assert outcome.status == "succeeded"
