"""A plan that changes says what is different and why; a task may wait until results decide who does it."""

from datetime import UTC, datetime
from typing import Any

import pytest

from brain.explanation.explain import explain
from starling.core.forks import ForkChanges
from starling.core.runs import ForkRequest
from starling.infra.postgres.runs.acceptance import RunKey
from tests.support.model_script import Answer
from tests.support.platform import BENCH, SHOP, Platform, ScriptedModel, calls, decision, task, verdict

pytestmark = pytest.mark.asyncio(loop_scope="module")

LOOK = calls(("look", {"thing": "disk"}))
FAIL = calls(("fail", {"why": "broken"}))


def removed(task_id: str, reason: str) -> dict[str, str]:
    return {"task_id": task_id, "reason": reason}


async def with_changes(platform: Platform, script: ScriptedModel, second: Answer) -> Any:
    """Return a run whose first task fails, while two others wait for an approved one and for that."""
    script.supervisor(
        decision(task("t1", BENCH), task("t2", SHOP, "look at the roof", after=["t1"]), task("t3", SHOP, after=["t2"])),
        second,
    )
    for task_id in ("t2", "t3", "t4"):
        script.agent(task_id, LOOK)
    script.agent("t1", FAIL)
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("Done [1]."))
    return await platform.ask("Look.")


async def test_changes_are_listed_with_their_cause_and_the_supervisors_reason(
    platform: Platform, script: ScriptedModel
) -> None:
    second = decision(
        task("t1", SHOP, "look again"),
        task("t3", SHOP),
        task("t4", SHOP, after=["t1"]),
        removed=[removed("t2", "nobody needs the roof")],
        thought_process="The bench is broken.",
    )
    stream = await with_changes(platform, script, second)

    first, changed, *_ = stream.of("plan")
    assert "changes" not in first
    found = {(one["kind"], one["task_id"]): one["reason"] for one in changed["changes"]}
    assert set(found) == {
        ("reassigned", "t1"),
        ("reworded", "t1"),
        ("repeated", "t1"),
        ("reordered", "t3"),
        ("added", "t4"),
        ("removed", "t2"),
    }
    assert found["removed", "t2"] == "nobody needs the roof"
    assert found["reassigned", "t1"].startswith("t1 failed: bench.fail failed: ")
    assert found["reassigned", "t1"].endswith("The bench is broken.")
    assert [one["id"] for one in changed["tasks"]] == ["t1", "t3", "t4"]
    document = await platform.services.runs.documents.read(stream.key)
    assert {one.id for one in document.tasks} == {"t1", "t3", "t4"}
    assert len(document.plans[1].changes) == len(found)
    assert "t2 was removed (nobody needs the roof)" in explain(document, datetime.now(UTC)).planned.versions[1].text


async def test_removing_what_another_task_needs_is_sent_back(platform: Platform, script: ScriptedModel) -> None:
    second = decision(task("t1", SHOP), removed=[removed("t2", "not needed"), removed("t9", "")])

    await with_changes(platform, script, second)

    sent_back = platform.requests_containing("t3 depends on t2, which is removed: change it, or remove it too.")
    assert sent_back
    assert "removed names t9, which isn't a pending task." in sent_back[0]["messages"][-1]["content"]


async def test_removal_is_offered_only_where_a_task_is_pending(platform: Platform, script: ScriptedModel) -> None:
    await with_changes(platform, script, decision())

    first, second = (body["messages"][0]["content"] for body in platform.requests_containing("You supervise agents"))
    assert ("`removed`" in first, "`removed`" in second) == (False, True)


async def test_fork_at_a_task_without_an_agent_begins_with_a_decision(
    platform: Platform, script: ScriptedModel
) -> None:
    script.run(
        decision(task("t1", BENCH), task("t2", "", "act on the result", after=["t1"])),
        decision(),
        decision(task("t2", SHOP, "act on the result", after=["t1"])),
        t1=LOOK,
        t2=LOOK,
        qa=Answer("Looked [1]."),
    )
    original = await platform.ask("Look, then act.")

    request = ForkRequest(at="t2", changes=ForkChanges(), live=False)
    accepted = await platform.services.forks.accept(platform.caller, original.key.id, request)
    stream = await platform.finish(RunKey(original.key.tenant, accepted.started.run_id))

    assert [one["agent"] for one in stream.of("task_result")] == [BENCH, SHOP]


async def test_task_that_nobody_is_chosen_for_is_named_and_not_asked_about_for_ever(
    platform: Platform, script: ScriptedModel
) -> None:
    script.run(
        decision(task("t1", BENCH), task("t2", "", "act on the result", after=["t1"])),
        decision(),
        t1=LOOK,
        qa=Answer("Looked [1]."),
    )

    stream = await platform.ask("Look, then act.")

    assert len(platform.requests_containing("You supervise agents")) == 2
    assert (
        "Not answered: act on the result (It waited for a decision on who does it, which was not made.)" in stream.reply
    )
