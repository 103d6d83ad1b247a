"""A fork begins with what its original had decided, and does nothing of that again."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from brain.state import FORK_VERSION
from starling.core.conversation.turn import states_of
from starling.core.errors import ForbiddenError, InvalidRequestError, NotFoundError
from starling.core.forks import ForkChanges, NotForkableError
from starling.core.principal import Scope
from starling.core.runs import ForkRequest
from starling.infra.postgres.retention import PruneSelection, Retention
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.conversations import read_line, reader_of
from starling.infra.postgres.runs.leases import Leases
from tests.support.interrupted_runs import answer_interrupts, execute_run, open_interrupts
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
CHANGE = calls(("change", {"thing": "door"}))
AWAY = Answer(status=400, body='{"error": {"message": "the input is too long"}}')
BAD, GOOD = verdict("REJECTED", "not enough"), verdict("APPROVED")


async def forked(
    platform: Platform, original: RunKey, at: str = "start", *, live: bool = False, **changes: Any
) -> RunKey:
    request = ForkRequest(at=at, changes=ForkChanges(**changes), live=live)
    accepted = await platform.services.forks.accept(platform.caller, original.id, request)
    return RunKey(original.tenant, accepted.started.run_id)


async def fork(platform: Platform, original: RunStream, at: str = "start", **more: Any) -> RunStream:
    platform.model.forget()
    return await platform.finish(await forked(platform, original.key, at, **more))


async def three_tasks(platform: Platform, script: ScriptedModel, last: Answer = LOOK) -> RunStream:
    """Return a run whose third task needs the first two and failed, after which it was decided again."""
    script.supervisor(decision(task("t1", BENCH), task("t2", SHOP), task("t3", BENCH, after=["t1", "t2"])), decision())
    script.agent("t1", LOOK)
    script.agent("t2", CHANGE)
    script.agent("t3", last)
    script.reviewer(GOOD, of="t1")
    script.reviewer(GOOD, of="t2")
    script.reviewer(BAD, BAD, GOOD, of="t3")
    script.qa(Answer("All of it [1][2][3]."))
    return await platform.ask("Do three things.")


async def document(platform: Platform, key: RunKey) -> Any:
    return await platform.services.runs.documents.read(key)


async def test_fork_at_a_task_asks_no_model_for_what_it_inherits(
    platform: Platform, script: ScriptedModel, workbench: Workbench
) -> None:
    original = await three_tasks(platform, script)
    before = workbench.done()

    stream = await fork(platform, original, "t3")

    assert stream.status == "succeeded"
    assert workbench.done() == [*before, "look disk"]
    assert [bool(part.get("inherited")) for part in stream.of("plan")] == [True]
    assert [(part["path"], part.get("inherited", False)) for part in stream.of("task_result")] == [
        ("t1", True),
        ("t2", True),
        ("t3", False),
    ]
    assert len(platform.model.requests) == 3  # of t3, its review, and the answer
    assert stream.done["usage"]["model_calls"] == 3
    assert stream.done["effects"] == []
    shown = await document(platform, stream.key)
    assert shown.forked_from == {"run": original.key.id, "at": "t3", "changes": {}, "live": False}
    assert [one.path for one in shown.tasks if one.inherited] == ["t1", "t2"]


async def test_fork_before_a_decision_sees_what_that_saw(platform: Platform, script: ScriptedModel) -> None:
    original = await three_tasks(platform, script)
    seen = platform.model.bodies[-2]["messages"]

    script.forget()
    script.supervisor(decision(task("t4", BENCH)))
    script.agent("t4", LOOK)
    script.reviewer(GOOD)
    script.qa(Answer("Fine [1]."))
    stream = await fork(platform, original, "d2", live=True)  # else it could not build teams

    assert platform.model.bodies[0]["messages"] == seen
    assert [part["path"] for part in stream.of("task_result")] == ["t1", "t2", "t3", "t4"]
    assert stream.status == "succeeded"


async def test_fork_begins_with_what_went_on_without_the_supervisors_model(
    platform: Platform, script: ScriptedModel
) -> None:
    plan = decision(task("t1", SHOP), task("t2", BENCH), task("t3", BENCH, after=["t2"]))
    script.reviewer(BAD, of="t3")
    last, said = decision(task("t4", BENCH)), Answer("Fine [1][2].")
    script.run(plan, AWAY, last, t1=Answer("I can't."), t2=LOOK, t3=LOOK, t4=LOOK, qa=said)
    original = await platform.ask("Do three things.")

    stream = await fork(platform, original, "d3")

    assert sorted(event["task_id"] for event in original.of("task_start")) == ["t1", "t2", "t3", "t3", "t4"]
    assert (stream.status, [event["task_id"] for event in stream.of("task_start")]) == ("succeeded", ["t4"])


async def test_fork_of_a_run_that_nobody_planned_asks_no_supervisor(platform: Platform, script: ScriptedModel) -> None:
    script.reviewer(GOOD, BAD)
    script.run(AWAY, decision(task("t2", BENCH)), t1=[Answer("In short: yes."), Answer("In short: no.")])
    original = await platform.ask("How is it?")

    stream = await fork(platform, original, "t1")

    assert (original.reply, stream.status) == ("In short: yes.", "failed")
    assert len(platform.model.requests) == 4  # two attempts and their reviews


async def test_fork_is_on_a_branch_before_the_original(platform: Platform, script: ScriptedModel) -> None:
    script.supervisor(decision(reply="Hello."))
    await platform.ask("Hi.")
    second = await platform.ask("And now?")

    stream = await fork(platform, second, input="And then?")

    rows = {
        name: await platform.services.runs.documents.row(key) for name, key in (("a", second.key), ("b", stream.key))
    }
    assert rows["b"].input == "And then?"
    async with platform.services.storage.engine.connect() as connection:
        found = await connection.exec_driver_sql(
            "SELECT parent, fork_position, tip FROM branches WHERE tenant = %s AND parent IS NOT NULL",
            (stream.key.tenant,),
        )
        assert [tuple(row) for row in found] == [("main", 3, 6)]


async def test_fork_that_is_not_live_gets_the_original_result_of_an_effect(
    platform: Platform, script: ScriptedModel, workbench: Workbench
) -> None:
    original = await three_tasks(platform, script)
    done = workbench.done()

    stream = await fork(platform, original, "t2")

    assert [line for line in workbench.done()[len(done) :] if line.startswith("change")] == []
    [simulated] = [part for part in stream.of("tool_result") if part.get("simulated")]
    assert simulated["simulated"] == "fixture"
    assert "an equal call got before" in simulated["result"]


async def test_live_fork_asks_before_it_repeats_what_the_original_sent(
    platform: Platform, script: ScriptedModel, workbench: Workbench
) -> None:
    original = await three_tasks(platform, script)
    workbench.forget()
    key = await forked(platform, original.key, "t2", live=True)
    await execute_run(platform, key)
    [question] = await open_interrupts(platform, key)
    assert question.kind == "approval"
    assert workbench.done() == []

    await answer_interrupts(platform, key, approved=True)
    stream = await platform.finish(key)

    assert stream.status == "succeeded"
    assert workbench.done().count("change door") == 1
    again = await forked(platform, key, "t2", live=True)  # its approval is not inherited
    await execute_run(platform, again)
    assert len(await open_interrupts(platform, again)) == 1


async def test_fork_resumes_after_a_crash(platform: Platform, script: ScriptedModel) -> None:
    original = await three_tasks(platform, script, replace(LOOK))
    script.forget()
    script.agent("t3", replace(LOOK, hold="once"), LOOK)
    script.reviewer(GOOD)
    script.qa(Answer("All of it [1][2][3]."))
    key = await forked(platform, original.key, "t3")
    platform.model.forget()
    async with platform.executing(key):
        await platform.model.received(1)

    stream = await platform.finish(key)

    assert stream.status == "succeeded"
    assert [part["path"] for part in stream.of("task_result")] == ["t1", "t2", "t3"]


async def test_fork_of_a_fork_begins_with_what_both_decided(platform: Platform, script: ScriptedModel) -> None:
    original = await three_tasks(platform, script)
    first = await fork(platform, original, "t3")

    second = await fork(platform, first, "t3")

    assert second.status == "succeeded"
    assert len(platform.model.requests) == 3
    assert [part["path"] for part in second.of("task_result") if part.get("inherited")] == ["t1", "t2"]


async def test_fork_keeps_answers_before_its_place_and_asks_others_again(
    platform: Platform, script: ScriptedModel
) -> None:
    asks = decision(question="Which disk?")
    script.supervisor(asks, decision(task("t1", BENCH)))
    script.agent("t1", LOOK)
    script.reviewer(GOOD)
    script.qa(Answer("Fine [1]."))
    key = await platform.accept("How is the disk?")
    await execute_run(platform, key)
    await answer_interrupts(platform, key, answer="The red one.")
    original = await platform.finish(key)

    kept = await fork(platform, original, "d2")
    assert "The red one." in str(platform.model.bodies[0]["messages"])
    assert kept.status == "succeeded"
    told = await document(platform, kept.key)
    assert [item.answer for item in told.interrupts] == ["The red one."]
    rows = reader_of(platform.services.storage.engine, kept.key.tenant)
    [(branch,)] = await rows("SELECT branch_id FROM runs WHERE id = %(run)s", run=kept.key.id)
    [stored] = await read_line(rows, told.thread_id, branch, limit=1)
    assert [one.state for one in stored.states()] == [one.state for one in states_of(told)]

    script.forget()
    script.supervisor(asks)
    again = await forked(platform, key, "d1")
    await execute_run(platform, again)
    assert [item.kind for item in await open_interrupts(platform, again)] == ["clarification"]


@pytest.mark.parametrize(
    ("at", "error"),
    [
        ("t9", InvalidRequestError),
        ("d3", InvalidRequestError),
        ("t1.2", InvalidRequestError),
        ("t1/t1", InvalidRequestError),
        ("t1:2", InvalidRequestError),
    ],
)
async def test_places_that_are_not_of_the_main_star_are_refused(
    platform: Platform, script: ScriptedModel, at: str, error: type[Exception]
) -> None:
    original = await three_tasks(platform, script)

    with pytest.raises(error):
        await forked(platform, original.key, at)


async def test_run_that_goes_on_or_was_pruned_is_not_forkable(platform: Platform, script: ScriptedModel) -> None:
    key = await platform.accept("Later.")
    with pytest.raises(NotForkableError):
        await forked(platform, key)
    script.supervisor(decision(task("t1", BENCH)))
    script.agent("t1", LOOK)
    script.reviewer(GOOD)
    script.qa(Answer("Fine [1]."))
    await platform.finish(key)
    await Retention(platform.services.storage.engine).prune(PruneSelection(timedelta(0), key.tenant))

    for at, live in (("t1", False), ("d2", False), ("start", True)):
        with pytest.raises(NotForkableError):
            await forked(platform, key, at, live=live)
    assert (await platform.finish(await forked(platform, key))).status == "succeeded"


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"model": {"router": "scripted:large"}}, InvalidRequestError),
        ({"prompts": {"supervisor": "abcdef"}}, NotFoundError),
        ({"epoch": 999}, NotFoundError),
        ({"teams": {"nobody": 1}}, NotFoundError),
    ],
)
async def test_changes_that_there_are_not_are_refused(
    platform: Platform, script: ScriptedModel, changes: Mapping[str, Any], error: type[Exception]
) -> None:
    script.supervisor(decision(reply="Hello."))
    original = await platform.ask("Hi.")

    with pytest.raises(error):
        await forked(platform, original.key, **changes)
    caller = replace(platform.caller, scopes=frozenset({Scope.RUN}))
    with pytest.raises(ForbiddenError):
        await forked(replace(platform, caller=caller), original.key, **changes)
    with pytest.raises(NotFoundError):
        await forked(replace(platform, caller=replace(caller, tenant="other")), original.key)


async def test_earlier_version_leaves_a_fork_alone(platform: Platform, script: ScriptedModel) -> None:
    script.supervisor(decision(reply="Hello."))
    original = await platform.ask("Hi.")
    key = await forked(platform, original.key)
    runs = platform.services.runs
    earlier = Leases(
        platform.services.storage.engine, runs.queue.defer, runs.repository.admit, graph_version=FORK_VERSION - 1
    )

    assert await earlier.claim(key, worker="old", lease_seconds=9, run_seconds=9) is None
    assert (await platform.finish(key)).status == "succeeded"
