"""The supervisor: asked where something is to decide, and a bad plan never passes for a good one."""

import pytest
from psycopg import AsyncConnection

from tests.integration.brain.conftest import Open
from tests.support.model_script import Answer
from tests.support.platform import BENCH, SHOP, Platform, ScriptedModel, calls, decision, task, verdict

pytestmark = pytest.mark.asyncio(loop_scope="module")

LOOK = calls(("look", {"thing": "disk"}))
GARBAGE = Answer('{"plan": "none"}')


async def test_independent_tasks_run_concurrently(platform: Platform, script: ScriptedModel) -> None:
    script.supervisor(decision(task("t1", BENCH), task("t2", SHOP)))
    for task_id in ("t1", "t2"):
        script.agent(task_id, calls(("meet", {"place": "side by side", "others": 2})))
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("They met."))

    stream = await platform.ask("Meet.")

    assert [result["status"] for result in stream.of("task_result")] == ["approved", "approved"]


async def test_calls_of_one_answer_run_concurrently(platform: Platform, script: ScriptedModel) -> None:
    meet = calls(*[("meet", {"place": "calls", "others": 3})] * 3)
    script.run(decision(task("t1", BENCH)), t1=meet, qa=Answer("They met."))

    stream = await platform.ask("Meet.")

    kinds = [kind for kind in stream.kinds if kind.startswith("tool")]
    assert (stream.status, kinds) == ("succeeded", ["tool_start"] * 3 + ["tool_result"] * 3)


async def test_conservative_run_sees_read_tools_only(platform: Platform, script: ScriptedModel) -> None:
    script.supervisor(decision(reply="Fine."))

    await platform.ask("How is the disk?", mode="CONSERVATIVE")

    planner = platform.requests_containing("You supervise agents")[0]["messages"][1]["content"]
    assert (f'<agent name="{BENCH}"' in planner, SHOP in planner) == (True, False)


async def test_reply_with_nul_character_is_stored_with_a_replacement(platform: Platform, script: ScriptedModel) -> None:
    script.supervisor(decision(reply="Hello\0!"))

    stream = await platform.ask("Hi.")

    assert (stream.status, stream.reply) == ("succeeded", "Hello�!")


async def test_row_that_postgres_refuses_fails_the_run_once(
    opened: Open, script: ScriptedModel, database_url: str
) -> None:
    script.run(decision(task("t1", "generalist")), t1=Answer("Done."))
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
