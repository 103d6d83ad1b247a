"""Steps and time: what doesn't fit is refused or named, and what was found is always told."""

import pytest

from starling.infra.postgres.runs.acceptance import RunKey
from tests.integration.brain.conftest import Open
from tests.support.interrupted_runs import answer_interrupts, execute_run
from tests.support.model_script import Answer
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

pytestmark = pytest.mark.asyncio(loop_scope="module")

LOOK = calls(("look", {"thing": "disk"}))
NEVER = Answer("late", hold="never")


def plan_chain(script: ScriptedModel, length: int) -> None:
    """Plan tasks that wait for each other, and let all of them succeed."""
    first, *rest = range(length)
    script.supervisor(
        decision(task(f"t{first}", "generalist"), *(task(f"t{n}", "generalist", after=[f"t{n - 1}"]) for n in rest))
    )
    for number in range(length):
        script.agent(f"t{number}", Answer(f"Done {number}."))
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("All done."))


async def finish_within(platform: Platform, key: RunKey, seconds: float) -> RunStream:
    await platform.brain.execute(await platform.claim(key, run_seconds=seconds))
    return await platform.stream(key)


async def reasons(platform: Platform, stream: RunStream) -> dict[str, str]:
    return {part.part: part.reason for part in (await platform.result(stream.key)).degraded}


async def test_long_chain_of_tasks_completes(platform: Platform, script: ScriptedModel) -> None:
    plan_chain(script, 20)

    stream = await platform.ask("Go on and on.", limits={"supervisor_calls": 1})

    assert (stream.status, stream.reply, len(stream.of("task_result"))) == ("succeeded", "All done.", 20)


async def test_run_ends_at_its_deadline(platform: Platform, script: ScriptedModel) -> None:
    script.supervisor(NEVER)

    stream = await platform.ask("Take your time.", limits={"run_seconds": 0.3})

    assert stream.status == "failed"
    assert stream.codes[-1] in ("deadline_exceeded", "llm_timeout")


async def test_results_from_before_the_deadline_are_the_answer(platform: Platform, script: ScriptedModel) -> None:
    script.run(
        decision(task("t1", BENCH), task("t2", BENCH, after=["t1"]), task("t3", BENCH, after=["t2"])), t1=LOOK, t2=NEVER
    )

    stream = await finish_within(platform, await platform.accept("How is the disk?"), 4)

    missing = await reasons(platform, stream)
    assert stream.status == "succeeded"
    assert stream.reply.startswith("the disk is fine [1]\n\nNot answered: do t2 (The run's time ran out.")
    assert missing["do t2"].startswith("The run's time ran out.")
    assert missing["do t3"] == "The run's time ran out."
    assert [citation.task_id for citation in (await platform.result(stream.key)).citations] == ["t1"]


async def test_run_without_results_fails_at_the_deadline(platform: Platform, script: ScriptedModel) -> None:
    script.supervisor(decision(task("t1", "generalist")))
    script.agent("t1", NEVER)

    stream = await finish_within(platform, await platform.accept("How is the disk?"), 3)

    assert stream.status == "failed"
    assert (await reasons(platform, stream))["do t1"].startswith("The run's time ran out.")


async def test_unsafe_call_interrupted_by_the_deadline_suspends_the_run(
    platform: Platform, script: ScriptedModel, workbench: Workbench
) -> None:
    script.supervisor(decision(task("t1", SHOP), task("t2", BENCH)))
    script.agent("t1", calls(("wait", {"place": "cut off"})))
    script.agent("t2", LOOK)
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("Waited [1], fine [2]."))
    key = await platform.accept("Wait and look.")
    await platform.brain.execute(await platform.claim(key, run_seconds=5.0))

    await answer_interrupts(platform, key, resolution="done", result="waited")
    stream = await platform.finish(key)

    results = {result["task_id"]: result for result in stream.of("task_result")}
    assert (results["t1"]["status"], results["t2"]["status"]) == ("approved", "approved")
    assert results["t1"]["summary"].startswith("waited\n")
    assert (stream.status, stream.reply) == ("succeeded", "Waited [1], fine [2].")
    assert workbench.done().count("wait cut off") == 1


async def test_run_resumed_without_time_left_answers_with_its_results(
    platform: Platform, script: ScriptedModel
) -> None:
    script.run(
        decision(task("t1", BENCH), task("t2", BENCH, after=["t1"]), task("t3", BENCH, after=["t2"])), t1=LOOK, t2=NEVER
    )
    key = await platform.accept("How is the disk?")
    async with platform.executing(key):
        await platform.model.received(4)

    stream = await finish_within(platform, key, 0.001)

    missing = await reasons(platform, stream)
    assert (stream.status, stream.codes) == ("succeeded", ["deadline_exceeded"])
    assert stream.reply.startswith("the disk is fine [1]")
    assert "check what it may have changed" in missing["do t2"]
    assert missing["do t3"] == "The run's time ran out."


async def test_unsafe_call_with_unknown_outcome_is_not_repeated(
    opened: Open, script: ScriptedModel, workbench: Workbench
) -> None:
    script.supervisor(decision(task("t1", SHOP)), decision(task("t1", SHOP)))
    script.agent("t1", calls(("wait", {"place": "too long"})))
    script.qa(Answer("Nobody knows whether it happened."))

    async with opened(tool_call_seconds=1.5) as platform:
        key = await platform.accept("Wait in the shop.")
        await execute_run(platform, key)
        await answer_interrupts(platform, key, resolution="give_up")
        stream = await platform.finish(key)
        missing = await reasons(platform, stream)

    assert workbench.done().count("wait too long") == 1
    assert len(stream.of("task_result")) == 1
    assert (stream.status, stream.codes) == ("failed", ["outcome_unknown"])
    assert missing["do t1"].startswith("It isn't done again. The call of shop.wait was interrupted")
    assert "Check what the tool changed" in missing["do t1"]
    second = platform.requests_containing("You supervise agents")[1]["messages"][1]["content"]
    assert '"outcome_unknown": true' in second


async def test_read_call_that_times_out_is_repeated(opened: Open, script: ScriptedModel) -> None:
    script.run(
        decision(task("t1", BENCH)), t1=[calls(("wait", {"place": "read too long"})), LOOK], qa=Answer("Fine [1].")
    )

    async with opened(tool_call_seconds=1.5) as platform:
        stream = await platform.ask("Look.")

    assert (stream.status, stream.of("task_result")[0]["attempt"]) == ("succeeded", 2)
