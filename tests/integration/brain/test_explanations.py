"""The explanation of a run whose worker ended in the middle of it."""

from brain.explanation.explain import explain
from starling.core.clock import SystemClock
from tests.support.platform import Platform, ScriptedModel, decision


async def test_run_that_another_worker_continued_says_so_without_a_cause(
    platform: Platform, script: ScriptedModel
) -> None:
    script.supervisor(decision(reply="Good morning."))
    key = await platform.accept("Good morning.")

    async with platform.executing(key):
        pass
    await platform.finish(key)

    found = explain(await platform.services.runs.documents.read(key), SystemClock().now())
    assert found.cause is None
    assert [(one.kind, one.count) for one in found.retried] == [("run", 1)]
