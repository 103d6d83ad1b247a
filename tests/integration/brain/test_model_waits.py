"""A run whose model fails for now: it waits with a warning, goes on, and a drain or a cancellation ends the wait."""

import asyncio
from pathlib import Path

from tests.integration.brain.conftest import Open
from tests.support.model_script import Answer, Rule, Script, When
from tests.support.model_server import ModelServer
from tests.support.platform import BENCH, ScriptedModel, calls, decision, open_platform, task

LATER = Answer(status=503, headers={"Retry-After": "30"}, body="busy")
BUSY = Answer(status=500, body="busy")


async def test_run_is_completed_once_the_model_answers_again(database_url: str, tmp_path: Path) -> None:
    failing = [Rule(BUSY, When(nth=1)) for _ in range(4)]
    script = Script(
        *failing, Rule(Answer('{"thought_process": "", "plan": [], "selected_agents": [], "reply": "Yes."}'))
    )
    async with (
        ModelServer(script) as model,
        open_platform(database_url, model, {}, tmp_path, model_wait_seconds=60) as it,
    ):
        stream = await it.ask("Is it?")

    assert (stream.status, stream.reply[:4]) == ("succeeded", "Yes.")
    warned = [one["message"] for one in stream.of("warning") if "asked again in" in one["message"]]
    assert len(warned) == 2
    assert all("scripted:small" in text and "500: busy" in text for text in warned)


async def test_draining_worker_hands_a_waiting_run_over(database_url: str, tmp_path: Path) -> None:
    script = Script(Rule(LATER))
    async with (
        ModelServer(script) as model,
        open_platform(database_url, model, {}, tmp_path, model_wait_seconds=60) as it,
    ):
        key = await it.accept("Is it?")
        async with it.executing(key) as life:
            while not model.requests:  # noqa: ASYNC110 - the server has no event for it
                await asyncio.sleep(0.02)
            it.brain.drain()
            ended = await asyncio.wait_for(life, 20)
        row = await it.services.runs.documents.row(key)

    assert ended is None
    assert row.result is None


async def test_cancellation_ends_the_wait(database_url: str, tmp_path: Path) -> None:
    async with (
        ModelServer(Script(Rule(LATER))) as model,
        open_platform(database_url, model, {}, tmp_path, model_wait_seconds=600) as it,
    ):
        key = await it.accept("Is it?")
        async with it.executing(key) as life:
            while not model.requests:  # noqa: ASYNC110 - the server has no event for it
                await asyncio.sleep(0.02)
            await it.services.runs.cancellation.cancel(key)
            ended = await asyncio.wait_for(life, 20)

    assert ended is not None
    assert ended.status == "cancelled"


async def test_other_task_goes_on_and_is_answered_if_the_time_ends(opened: Open, script: ScriptedModel) -> None:
    plan = decision(task("t1", BENCH, "look at the disk"), task("t2", BENCH, "look at the fan"))
    script.run(plan, t1=calls(("look", {"thing": "disk"})), t2=BUSY, qa=Answer("Fine [1]."))

    async with opened(model_wait_seconds=60) as it:
        key = await it.accept("Look at the disk and the fan.")
        await it.brain.execute(await it.claim(key, run_seconds=6))
        stream = await it.stream(key)

    ended = [event["task_id"] for event in stream.of("task_result") if event["status"] == "approved"]
    assert ended == ["t1"]
    assert stream.status == "succeeded"
    assert any("asked again in" in event["message"] for event in stream.of("warning"))
    assert any("isn't waited for any longer (the run's time)" in part["reason"] for part in stream.done["degraded"])
