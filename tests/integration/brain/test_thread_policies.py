"""What a new run means for the one that its thread works on already."""

import asyncio

import pytest
from psycopg import AsyncConnection

from starling.app.runs.acceptance import RunRequest
from starling.core.errors import ConflictError
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.busy_thread_policy import Policy
from tests.support.model_script import Answer
from tests.support.platform import CALLER, Platform, ScriptedModel, decision
from tests.support.worker_runtime import running_worker


async def accept(platform: Platform, policy: Policy, thread: str = "thread") -> RunKey:
    request = RunRequest(input="Hi.", thread_id=thread, policy=policy)
    return (await platform.services.runs.acceptance.accept(CALLER, request)).key


async def statuses(url: str) -> list[str]:
    """The status of each run, in the order of their arrival."""
    async with await AsyncConnection.connect(url, autocommit=True) as connection:
        cursor = await connection.execute("SELECT status FROM runs ORDER BY arrival")
        return [status for (status,) in await cursor.fetchall()]


async def test_runs_of_a_thread_are_queued_by_default(platform: Platform, script: ScriptedModel) -> None:
    script.supervisor(decision(reply="Hello."))
    keys = [await platform.accept("Hi.") for _ in range(3)]

    streams = [await platform.finish(key) for key in keys]

    assert [item.status for item in streams] == ["succeeded"] * 3


async def test_run_with_policy_reject_is_refused_while_another_is_unfinished(
    platform: Platform, script: ScriptedModel, database_url: str
) -> None:
    script.supervisor(decision(reply="Hello."))
    first = await accept(platform, "reject")

    with pytest.raises(ConflictError, match=first.id):
        await accept(platform, "reject")
    elsewhere = await accept(platform, "reject", thread="other")
    await platform.finish(first)
    after = await accept(platform, "reject")

    assert (await platform.finish(elsewhere)).status == (await platform.finish(after)).status == "succeeded"
    assert await statuses(database_url) == ["succeeded"] * 3


async def test_concurrent_runs_with_policy_reject_are_refused_but_one(platform: Platform, database_url: str) -> None:
    outcomes = await asyncio.gather(*(accept(platform, "reject") for _ in range(8)), return_exceptions=True)

    assert sorted(isinstance(outcome, ConflictError) for outcome in outcomes) == [False] + [True] * 7
    assert await statuses(database_url) == ["queued"]


async def test_run_with_policy_interrupt_cancels_running_and_queued_runs_and_is_next(
    platform: Platform, script: ScriptedModel, database_url: str
) -> None:
    script.supervisor(Answer("", hold="for ever"), decision(reply="Hello."))
    first = await accept(platform, "enqueue")
    async with platform.executing(first) as life:
        await platform.model.received(1)
        await accept(platform, "enqueue")
        last = await accept(platform, "interrupt")
        await life

    stream = await platform.finish(last)

    assert stream.reply == "Hello."
    assert await statuses(database_url) == ["cancelled", "cancelled", "succeeded"]
    assert "The run was cancelled." in str(platform.model.bodies[-1])


async def test_run_with_policy_interrupt_cancels_a_suspended_run(
    platform: Platform, script: ScriptedModel, database_url: str
) -> None:
    script.supervisor(decision(reply="Hello."))
    await accept(platform, "enqueue")
    async with await AsyncConnection.connect(database_url, autocommit=True) as connection:
        await connection.execute("UPDATE runs SET status = 'waiting', admitted_at = NULL, fence = 1")

    last = await accept(platform, "interrupt")

    assert (await platform.finish(last)).reply == "Hello."
    assert await statuses(database_url) == ["cancelled", "succeeded"]


async def test_concurrent_interrupting_runs_all_end_and_the_last_one_is_answered(
    platform: Platform, script: ScriptedModel, database_url: str
) -> None:
    script.supervisor(decision(reply="Hello."))
    async with running_worker(platform.worker_runtime.worker):
        keys = await asyncio.gather(*(accept(platform, "interrupt") for _ in range(10)))
        streams = [await platform.stream(key) for key in keys]

    assert {item.status for item in streams} <= {"succeeded", "cancelled"}
    found = await statuses(database_url)
    assert (len(found), found[-1]) == (10, "succeeded")
