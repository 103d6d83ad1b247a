"""The supervisor: asked where something is to decide, and a bad plan never passes for a good one."""

import pytest
from psycopg import AsyncConnection

from tests.integration.brain.conftest import Open
from tests.support.model_script import Answer
from tests.support.platform import BENCH, SHOP, Platform, ScriptedModel, calls, decision, task, verdict

pytestmark = pytest.mark.asyncio(loop_scope="module")

LOOK = calls(("look", {"thing": "disk"}))
GARBAGE = Answer('{"plan": "none"}')


async def test_ready_tasks_and_finished_plan_need_no_model_call(platform: Platform, script: ScriptedModel) -> None:
    script.supervisor(decision(task("t1", BENCH), task("t2", BENCH, after=["t1"])))
    script.agent("t1", LOOK)
    script.agent("t2", LOOK)
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("All is fine [1][2]."))

    stream = await platform.ask("How is the disk?")

    assert (stream.status, stream.reply) == ("succeeded", "All is fine [1][2].")
    assert len(platform.requests_containing("You supervise agents")) == 1
    assert [[item["task_id"] for item in route["selected_agents"]] for route in stream.of("route")] == [["t1"], ["t2"]]


async def test_independent_tasks_run_concurrently(platform: Platform, script: ScriptedModel) -> None:
    script.supervisor(decision(task("t1", BENCH), task("t2", SHOP)))
    for task_id in ("t1", "t2"):
        script.agent(task_id, calls(("meet", {"place": "side by side", "others": 2})))
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("They met."))

    stream = await platform.ask("Meet.")

    assert [result["status"] for result in stream.of("task_result")] == ["approved", "approved"]


async def test_reply_with_nul_character_is_stored_with_a_replacement(platform: Platform, script: ScriptedModel) -> None:
    script.supervisor(decision(reply="Hello\0!"))

    stream = await platform.ask("Hi.")

    assert (stream.status, stream.reply) == ("succeeded", "Hello�!")


async def test_row_that_postgres_refuses_fails_the_run_once(
    opened: Open, script: ScriptedModel, database_url: str
) -> None:
    script.supervisor(decision(task("t1", "generalist")))
    script.agent("t1", Answer("Done."))
    script.reviewer(verdict("APPROVED"))
    async with await AsyncConnection.connect(database_url, autocommit=True) as connection:
        await connection.execute("ALTER TABLE events ADD CHECK (type <> 'plan')")

    async with opened() as platform:
        stream = await platform.ask("Hi.")

    assert (stream.status, stream.codes) == ("failed", ["internal"])
    assert stream.key.id in stream.reply


async def test_plan_without_any_possible_task_fails_the_run(platform: Platform, script: ScriptedModel) -> None:
    script.supervisor(decision(task("t1", "nobody", "book a flight")))

    stream = await platform.ask("Book a flight.")

    assert (stream.status, stream.done["code"]) == ("failed", "no_result")
    assert "Not answered: book a flight (There is no agent 'nobody'.)" in stream.reply


async def test_failed_task_is_decided_again_and_its_second_try_counts(
    platform: Platform, script: ScriptedModel
) -> None:
    script.supervisor(decision(task("t1", BENCH)), decision(task("t1", SHOP)))
    script.agent("t1", Answer("I can't."), Answer("I can't."), LOOK)
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("Fine [1]."))

    stream = await platform.ask("How is the disk?")

    assert [(r["path"], r["agent"], r["status"]) for r in stream.of("task_result")] == [
        ("t1", BENCH, "failed"),
        ("t1.2", SHOP, "approved"),
    ]
    (_, second) = platform.requests_containing("You supervise agents")
    assert "I can't." in second["messages"][1]["content"]
    assert (stream.status, (await platform.result(stream.key)).degraded) == ("succeeded", [])


async def test_assumptions_and_unserved_parts_reach_the_result(platform: Platform, script: ScriptedModel) -> None:
    unserved = [{"part": "book a flight", "reason": "nobody books"}]
    script.supervisor(decision(task("t1", BENCH), assumptions=["the first disk"], unserved=unserved))
    script.agent("t1", LOOK)
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("Fine [1]."))

    stream = await platform.ask("How is the disk? Book a flight.")

    result = await platform.result(stream.key)
    assert result.assumptions == ["the first disk"]
    assert [(part.part, part.reason) for part in result.degraded] == [("book a flight", "nobody books")]
    assert [(citation.id, citation.task_id, citation.tools) for citation in result.citations] == [
        (1, "t1", ["bench.look"])
    ]
