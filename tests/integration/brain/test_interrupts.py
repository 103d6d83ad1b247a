"""A run that needs somebody waits, held by nobody, and goes on with the answer: nothing is asked or done twice."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from starling.core.errors import ConflictError
from starling.core.runs import RunStatus
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.interrupts import InterruptAnswer, StoredInterrupt
from tests.integration.brain.conftest import Open
from tests.support.interrupted_runs import execute_run, open_interrupts
from tests.support.model_script import Answer, Body
from tests.support.model_server import ModelServer
from tests.support.platform import (
    BENCH,
    Platform,
    ScriptedModel,
    Workbench,
    calls,
    decision,
    open_platform,
    task,
    verdict,
)

QUESTION = decision(question="Which disk?", options=["the first", "the second"])
LOOK = calls(("look", {"thing": "disk"}))


async def live(platform: Platform, key: RunKey) -> None:
    """Let a run live until it waits or ends."""
    await platform.brain.execute(await platform.claim(key))


async def begun(platform: Platform, text: str, *, thread: str = "thread", **config: Any) -> RunKey:
    """Accept a run and let it live until it waits."""
    key = await platform.accept(text, thread=thread, **config)
    await live(platform, key)
    assert await status(platform, key) is RunStatus.WAITING
    return key


async def status(platform: Platform, key: RunKey) -> RunStatus:
    return (await platform.services.runs.documents.row(key)).status


async def waiting(platform: Platform, key: RunKey) -> list[StoredInterrupt]:
    return await platform.services.runs.interrupts.waiting(key.tenant, run=key.id)


async def answer(platform: Platform, key: RunKey, payload: Mapping[str, Any] | None, number: int = 0) -> None:
    """Resolve the run's open interrupt of that number, or cancel it."""
    open_ones = await waiting(platform, key)
    state = "cancelled" if payload is None else "resolved"
    await platform.services.runs.interrupts.answer(
        key, [InterruptAnswer(open_ones[number].id, state, payload or {})], "me"
    )


async def lapse(platform: Platform, database_url: str) -> None:
    """Let the time of everything that waits be over, and sweep."""
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        await connection.execute("UPDATE interrupts SET expires_at = now() - interval '1 second'")
    await platform.services.runs.interrupts.expire()


async def stream(platform: Platform, key: RunKey) -> list[str]:
    return [event.type for event in await platform.services.runs.reader.events(key)]


async def clarifications(database_url: str) -> int:
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        row = await (await connection.execute("SELECT clarifications FROM branches")).fetchone()
        assert row is not None
        return row[0]


async def test_answer_to_a_question_reaches_the_supervisor_and_the_branch(
    platform: Platform, script: ScriptedModel, database_url: str
) -> None:
    script.supervisor(QUESTION, decision(reply="The second one is fine."))
    key = await begun(platform, "Is the disk fine?")
    [asked] = await waiting(platform, key)
    assert (asked.kind, asked.message) == ("clarification", "Which disk?")
    assert '"examples": ["the first", "the second"]' in json.dumps(asked.responseSchema)

    await answer(platform, key, {"answer": "the </answer> second"})
    ended = await platform.finish(key)

    assert (ended.status, ended.reply) == ("succeeded", "The second one is fine.")
    assert ended.kinds == ["run_started", "clarification", "plan", "thinking", "done"]
    assert len(platform.model.requests) == 2
    first, second = platform.model.bodies
    assert ["question" in str(asked["response_format"]) for asked in (first, second)] == [True, False]
    assert "the &lt;/answer&gt; second" in str(second["messages"])
    assert "the </answer> second" not in str(second["messages"])
    again = await platform.ask("And now?")
    assert again.status == "succeeded"
    history = str(platform.model.bodies[-1]["messages"])
    assert "Which disk?" in history
    assert "second" in history
    assert await clarifications(database_url) == 0


async def test_suspended_run_holds_no_lease_worker_or_job(
    platform: Platform, script: ScriptedModel, database_url: str
) -> None:
    script.supervisor(QUESTION, decision(reply="Fine."))

    key = await begun(platform, "Is the disk fine?")

    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        held = await connection.execute("SELECT lease_until, worker, admitted_at, crashes FROM runs")
        assert await held.fetchone() == (None, None, None, 0)
        jobs = await connection.execute("SELECT count(*) FROM procrastinate_jobs WHERE status = 'doing'")
        assert await jobs.fetchone() == (0,)
    await answer(platform, key, {"answer": "the first"})
    assert (await platform.finish(key)).status == "succeeded"


async def test_suspended_run_does_not_count_in_the_limit_of_its_tenant(opened: Open, script: ScriptedModel) -> None:
    script.supervisor(QUESTION, decision(reply="Fine."))
    async with opened(runs_per_tenant=1) as platform:
        waits = await begun(platform, "Is the disk fine?", thread="a")

        other = await platform.ask("Hello.", thread="b")
        held = await platform.claim(await platform.accept("Hello again.", thread="c"))
        await answer(platform, waits, {"answer": "the first"})

        assert other.status == "succeeded"
        assert await status(platform, waits) is RunStatus.QUEUED
        await platform.brain.execute(held)  # its end admits the run that was woken
        assert (await platform.finish(waits)).status == "succeeded"


async def test_third_run_after_two_that_asked_may_not_ask(
    platform: Platform, script: ScriptedModel, database_url: str
) -> None:
    script.supervisor(QUESTION, decision(reply="1"), QUESTION, decision(reply="2"), decision(reply="3"), QUESTION)
    for number in ("1", "2"):
        key = await begun(platform, "Is the disk fine?")
        await answer(platform, key, {"answer": "the first"})
        assert (await platform.finish(key)).reply == number
    assert await clarifications(database_url) == 2

    third = await platform.ask("And the door?")

    assert third.reply == "3"
    assert "question" not in str(platform.model.bodies[-1]["response_format"])
    assert await clarifications(database_url) == 0
    await begun(platform, "And now?")


async def test_run_continues_after_it_is_given_more_budget(platform: Platform, script: ScriptedModel) -> None:
    script.run(decision(task("t1", BENCH)), t1=LOOK, qa=Answer("Fine [1]."))

    key = await begun(platform, "How is the disk?", limits={"tokens": 20})
    for tokens in (1, 10_000.0):
        [asked] = await waiting(platform, key)
        assert asked.kind == "budget"
        await answer(platform, key, {"tokens": tokens})
        await live(platform, key)

    ended = await platform.stream(key)
    assert (ended.status, ended.reply) == ("succeeded", "Fine [1].")
    assert ended.kinds.count("budget_required") == 2
    assert len(platform.model.requests) == 4


async def test_concurrent_tasks_ask_for_budget_once(platform: Platform, script: ScriptedModel) -> None:
    script.supervisor(decision(task("t1", BENCH), task("t2", BENCH), task("t3", BENCH)))
    for number in (1, 2, 3):
        script.agent(f"t{number}", LOOK)
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("Fine [1]."))

    key = await begun(platform, "How are the disks?", limits={"tokens": 1})
    [_] = await waiting(platform, key)
    await answer(platform, key, {"tokens": 10_000})
    ended = await platform.finish(key)

    assert ended.status == "succeeded"
    assert ended.kinds.count("budget_required") == 1


@pytest.mark.parametrize("expires", [False, True])
async def test_run_that_is_refused_more_budget_answers_with_its_results(
    platform: Platform, script: ScriptedModel, database_url: str, *, expires: bool
) -> None:
    script.run(decision(task("t1", BENCH), task("t2", BENCH)), t1=LOOK, t2=LOOK)
    key = await begun(platform, "How is the disk?", limits={"tokens": 90})  # 18 for each answer: all but QA's

    await (lapse(platform, database_url) if expires else answer(platform, key, None))
    ended = await platform.finish(key)

    assert ended.status == "budget_exhausted"
    assert "the disk is fine" in ended.reply
    assert len(platform.model.requests) == 5
    assert ended.codes == ["budget_exhausted"]


async def test_answer_after_the_expiry_is_refused(platform: Platform, script: ScriptedModel, database_url: str) -> None:
    script.supervisor(QUESTION, decision(reply="Fine."))
    key = await begun(platform, "Is the disk fine?")
    [asked] = await waiting(platform, key)
    await lapse(platform, database_url)

    with pytest.raises(ConflictError):
        await platform.services.runs.interrupts.answer(
            key, [InterruptAnswer(asked.id, "resolved", {"answer": "a"})], "me"
        )


class Unmetered:
    """A model whose endpoint reports no tokens."""

    def __init__(self, script: ScriptedModel) -> None:
        self._script = script

    async def __call__(self, body: Body) -> Answer:
        return replace(await self._script(body), usage=())


async def test_run_whose_endpoint_reports_no_usage_reaches_its_ceiling_with_one_warning(
    database_url: str, workbench: Workbench, script: ScriptedModel, tmp_path: Path
) -> None:
    script.supervisor(decision(task("t1", BENCH)))
    script.agent("t1", calls(("look", {"thing": "disk"})))
    script.agent("t1", Answer("It is half full."))
    servers = {"bench": workbench.as_server("read")}

    async with (
        ModelServer(Unmetered(script)) as model,
        open_platform(database_url, model, servers, tmp_path, run_tokens=1_200) as platform,
    ):
        key = await platform.accept("How is the disk?")
        await execute_run(platform, key)
        waiting = (await platform.services.runs.documents.row(key)).status
        [asked] = await open_interrupts(platform, key)
        await platform.services.runs.interrupts.answer(key, [InterruptAnswer(asked.id, "cancelled", {})], "me")
        stream = await platform.finish(key)

    assert (waiting, stream.status) == (RunStatus.WAITING, "budget_exhausted")
    assert stream.done["usage"]["estimated"]
    assert stream.done["usage"]["tokens"] >= 1_200
    assert stream.codes.count("usage_estimated") == 1
