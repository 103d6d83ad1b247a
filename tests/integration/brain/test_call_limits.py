"""How much one run can do: counted at the server that has the effects, and in tokens."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from starling.core.runs import RunStatus
from starling.infra.postgres.runs.interrupts import InterruptAnswer
from starling.infra.postgres.runs.ledger import LedgerReader
from tests.integration.brain.conftest import Open
from tests.support.effect_recorder import AGENT, EffectRecorder
from tests.support.interrupted_runs import execute_run, open_interrupts
from tests.support.model_script import Answer
from tests.support.platform import BENCH, Platform, ScriptedModel, calls, decision, task, verdict


@pytest.fixture
def effects(tmp_path: Path) -> EffectRecorder:
    return EffectRecorder(tmp_path / "effects")


@pytest.fixture
async def platform(opened: Open, effects: EffectRecorder) -> AsyncGenerator[Platform]:
    async with opened(servers={"effects": effects.as_server()}) as platform:
        yield platform


def one_task(script: ScriptedModel, *answers: Answer) -> None:
    script.supervisor(decision(task("t1", AGENT)))
    script.agent("t1", *answers)
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("Done [1]."))


async def test_two_hundred_identical_unsafe_calls_have_one_effect(
    platform: Platform, script: ScriptedModel, effects: EffectRecorder
) -> None:
    one_task(script, calls(*[("charge", {"what": "a"})] * 200))

    stream = await platform.ask("Charge it.")

    rows = await LedgerReader(platform.services.engine).calls(stream.key)
    assert (stream.status, stream.codes) == ("succeeded", ["identical_calls"])
    assert (effects.done(), len(rows)) == (["charge a"], 1)
    assert "asked for 200 times" in stream.of("task_result")[0]["summary"]
    assert stream.done["usage"]["tool_calls"] == 1


async def test_different_unsafe_calls_of_one_answer_are_limited(
    platform: Platform, script: ScriptedModel, effects: EffectRecorder
) -> None:
    one_task(script, calls(*(("charge", {"what": str(number)}) for number in range(40))), Answer("That is enough."))

    stream = await platform.ask("Charge them.")

    assert (stream.status, stream.codes) == ("succeeded", ["limit_reached"])
    assert sorted(effects.done()) == sorted(f"charge {number}" for number in range(16))


async def test_run_over_its_tokens_asks_a_person_for_more(opened: Open, script: ScriptedModel) -> None:
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
