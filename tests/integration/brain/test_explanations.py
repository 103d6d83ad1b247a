"""Explanations of real runs."""

import pytest

from brain.explanation.shape import Explanation
from starling.core.errors import NotFoundError
from starling.infra.postgres.runs.acceptance import RunKey
from tests.integration.brain.conftest import Open
from tests.support.interrupted_runs import execute_run
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

APPROVED = verdict("APPROVED")


async def explained(platform: Platform, stream: RunStream) -> Explanation:
    return await platform.services.runs.explanations.explain(stream.key)


async def test_run_without_trouble_has_no_cause(platform: Platform, script: ScriptedModel) -> None:
    script.supervisor(decision(task("t1", BENCH, "Look at the disk."), task("t2", BENCH, "Look at the fan.", ["t1"])))
    script.agent("t1", calls(("look", {"thing": "disk"})))
    script.agent("t2", calls(("look", {"thing": "fan"})))
    script.reviewer(APPROVED)
    script.qa(Answer("Both are fine [1] [2]."))

    found = await explained(platform, await platform.ask("How are the disk and the fan?"))

    assert (found.cause, found.causes, found.failures, found.pruned) == (None, [], [], ())
    assert [(one.task, one.status, one.rested_on) for one in found.verdicts] == [
        ("t1", "APPROVED", ["t1.0.0"]),
        ("t2", "APPROVED", ["t2.0.0"]),
    ]
    assert {one.agent for one in found.cost.by_agent} == {BENCH, "the supervisor", "the reviewer", "the final answer"}
    assert found.cost.tokens == sum(one.tokens for one in found.cost.by_agent)


async def test_first_failure_of_a_run_is_its_cause_and_what_it_blocked_follows(
    platform: Platform, script: ScriptedModel
) -> None:
    script.supervisor(
        decision(task("t1", BENCH, "Look at the disk."), task("t2", SHOP, "Change the disk.", ["t1"])),
        decision(is_request_satisfied=False),
    )
    script.agent("t1", calls(("look", {"item": "disk"})))
    script.reviewer(APPROVED)

    found = await explained(platform, await platform.ask("Change the disk if it is broken."))

    assert found.cause is not None
    assert (found.cause.code, found.cause.task) == ("wrong_argument", "t1")
    assert BENCH in found.cause.text
    assert "bench.look" in found.cause.text
    assert ("call", "t1.0.0") in [(ref.kind, ref.id) for ref in found.cause.refs]
    assert [(one.task, one.followed_from) for one in found.failures] == [("t1", None), ("t2", "t1")]


async def test_run_of_another_tenant_is_not_found(platform: Platform, script: ScriptedModel) -> None:
    script.supervisor(decision(reply="Hello.", is_request_satisfied=True))
    stream = await platform.ask("Hi.")

    with pytest.raises(NotFoundError):
        await platform.services.runs.explanations.explain(RunKey("other", stream.key.id))


async def test_run_that_another_worker_continued_says_so_without_a_cause(
    platform: Platform, script: ScriptedModel
) -> None:
    script.supervisor(decision(reply="Good morning."))
    key = await platform.accept("Good morning.")

    async with platform.executing(key):
        pass
    found = await explained(platform, await platform.finish(key))

    assert found.cause is None
    assert [(one.kind, one.count) for one in found.retried] == [("run", 1)]


async def test_run_that_waited_for_approval_has_its_cancellation_as_its_only_cause(
    opened: Open, script: ScriptedModel, workbench: Workbench
) -> None:
    shop = workbench.as_server("unsafe")
    shop["x-starling"]["approval"] = "unsafe"
    script.supervisor(decision(task("t1", SHOP)))
    script.agent("t1", calls(("change", {"thing": "door"})))
    async with opened(servers={"shop": shop}) as platform:
        key = await platform.accept("Change the door.")
        await execute_run(platform, key)
        waiting = await platform.services.runs.explanations.explain(key)
        await platform.services.runs.cancellation.cancel(key)
        found = await platform.services.runs.explanations.explain(key)

    assert (waiting.cause, [one.status for one in waiting.planned.versions[0].tasks]) == (None, ["waiting"])
    assert "for the approval of shop.change" in waiting.waited[0].text
    assert [one.code for one in found.causes] == ["cancelled_by_user"]
    assert "It waited for an answer to: " in found.causes[0].text
