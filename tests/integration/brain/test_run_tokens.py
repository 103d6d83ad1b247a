"""The tokens that a run may use by default: over them it asks a person for more."""

from starling.core.runs import RunStatus
from starling.infra.postgres.runs.interrupts import InterruptAnswer
from tests.integration.brain.conftest import Open
from tests.support.interrupted_runs import execute_run, open_interrupts
from tests.support.model_script import Answer
from tests.support.platform import BENCH, ScriptedModel, calls, decision, task, verdict


async def test_run_that_exceeds_its_tokens_asks_for_more(opened: Open, script: ScriptedModel) -> None:
    script.supervisor(decision(task("t1", BENCH)))
    script.agent("t1", calls(("look", {"thing": "disk"})))
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("Fine [1]."))

    async with opened(run_tokens=30) as platform:
        key = await platform.accept("How is the disk?", limits={"tokens": 10_000})
        await execute_run(platform, key)
        waiting = (await platform.services.reader.record(key)).status
        [asked] = await open_interrupts(platform, key)
        await platform.services.interrupts.answer(
            key, [InterruptAnswer(asked.id, "resolved", {"tokens": 10_000})], "me"
        )
        stream = await platform.finish(key)

    assert (waiting, asked.reason) == (RunStatus.WAITING, "The run has used 36 of 30 tokens.")
    assert (stream.status, stream.reply) == ("succeeded", "Fine [1].")
