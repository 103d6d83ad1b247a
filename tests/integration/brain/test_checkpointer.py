"""What lies in the checkpointer's tables while a run goes on, and what a run that is interrupted finds there."""

from collections.abc import Sequence
from typing import Any

from psycopg import AsyncConnection

from tests.support.model_script import Answer
from tests.support.platform import BENCH, Platform, ScriptedModel, calls, decision, task, verdict

TASKS = 24
# of each value: its channel, and whether the newest checkpoint refers to it
_VALUES = """
SELECT value.channel, newest.checkpoint -> 'channel_versions' ->> value.channel = value.version
FROM checkpoint_blobs AS value, (SELECT checkpoint FROM checkpoints ORDER BY checkpoint_id DESC LIMIT 1) AS newest"""
_LEFT = """
SELECT checkpoint_id FROM checkpoints UNION ALL SELECT channel FROM checkpoint_blobs
UNION ALL SELECT path FROM journal WHERE path LIKE 't%' AND kind = 'context'"""
_ANSWERS = "SELECT path FROM journal WHERE path LIKE 't%' AND kind = 'answer'"


async def rows(url: str, query: str) -> Sequence[tuple[Any, ...]]:
    async with await AsyncConnection.connect(url) as connection:
        return await (await connection.execute(query.encode())).fetchall()


def says_many_tasks(script: ScriptedModel, *answers: Answer) -> None:
    script.supervisor(decision(*(task(f"t{number}", BENCH) for number in range(TASKS))))
    for number in range(TASKS):
        script.agent(f"t{number}", calls(("look", {"thing": f"number {number}, " * 20})))
    script.reviewer(verdict("APPROVED"))
    script.qa(*answers)


async def test_replaced_checkpoints_and_values_are_deleted_during_the_run(
    platform: Platform, script: ScriptedModel, database_url: str
) -> None:
    says_many_tasks(script, Answer("Fine [1].", hold="for ever"))
    key = await platform.accept("How is everything?")

    async with platform.executing(key):
        await platform.model.received(1 + 2 * TASKS + 1)
        values = await rows(database_url, _VALUES)
        checkpoints = await rows(database_url, "SELECT checkpoint_id FROM checkpoints")

    assert {"tasks", "results", "plan"} <= {channel for channel, _ in values}
    assert [channel for channel, needed in values if not needed] == []
    assert len(checkpoints) == 1


async def test_interrupted_run_continues_from_its_last_checkpoint(
    platform: Platform, script: ScriptedModel, database_url: str
) -> None:
    says_many_tasks(script, Answer("Half an answer", hold="for ever", hold_after=2), Answer("A whole answer [1]."))
    key = await platform.accept("How is everything?")
    async with platform.executing(key):
        await platform.model.received(1 + 2 * TASKS + 1)

    stream = await platform.finish(key)

    assert (stream.status, stream.reply) == ("succeeded", "A whole answer [1].")
    assert len(platform.model.requests) == 1 + 2 * TASKS + 2
    assert await rows(database_url, _LEFT) == []
    assert len(await rows(database_url, _ANSWERS)) == 2 * TASKS
