"""Steps and time: what doesn't fit is refused or named, and what was found is always told."""

from starling.infra.postgres.runs.acceptance import RunKey
from tests.integration.brain.conftest import Open
from tests.support.model_script import Answer
from tests.support.platform import BENCH, SHOP, ModelSays, Platform, Told, Workbench, calls, decision, task, verdict
from tests.support.waiting import answer, live

LOOK = calls(("look", {"thing": "disk"}))
NEVER = Answer("late", hold="never")


def plan_chain(says: ModelSays, length: int) -> None:
    """Plan tasks that wait for each other, and let all of them succeed."""
    first, *rest = range(length)
    says.supervisor(
        decision(task(f"t{first}", "generalist"), *(task(f"t{n}", "generalist", after=[f"t{n - 1}"]) for n in rest))
    )
    for number in range(length):
        says.agent(f"t{number}", Answer(f"Done {number}."))
    says.reviewer(verdict("APPROVED"))
    says.qa(Answer("All done."))


async def finish_within(platform: Platform, key: RunKey, seconds: float) -> Told:
    await platform.brain.execute(await platform.claim(key, run_seconds=seconds))
    return await platform.told(key)


async def reasons(platform: Platform, told: Told) -> dict[str, str]:
    return {part.part: part.reason for part in (await platform.result(told.key)).degraded}


async def test_a_long_chain_of_tasks_runs_to_its_end(platform: Platform, says: ModelSays) -> None:
    plan_chain(says, 20)

    told = await platform.ask("Go on and on.", limits={"supervisor_calls": 1})

    assert (told.status, told.reply, len(told.of("task_result"))) == ("succeeded", "All done.", 20)


async def test_a_chain_that_takes_exactly_the_steps_there_are_runs(opened: Open, says: ModelSays) -> None:
    plan_chain(says, 3)

    async with opened(graph_steps=9) as platform:
        told = await platform.ask("Do three things.")

    assert (told.status, told.codes, len(told.of("task_result"))) == ("succeeded", [], 3)


async def test_a_chain_that_takes_more_steps_is_sent_back_and_then_cut(opened: Open, says: ModelSays) -> None:
    plan_chain(says, 4)

    async with opened(graph_steps=9) as platform:
        told = await platform.ask("Do four things.")
        missing = await reasons(platform, told)

    assert "t3: Its turn would come too late: only 3 more rounds" in platform.model.bodies[1]["messages"][-1]["content"]
    assert (told.status, told.codes, len(told.of("task_result"))) == ("succeeded", ["llm_invalid_response"], 3)
    assert "limits.graph_steps" in missing["do t3"]


async def test_a_second_try_that_leaves_no_room_for_the_rest_ends_with_what_there_is(
    opened: Open, says: ModelSays
) -> None:
    says.supervisor(
        decision(task("t1", BENCH), task("t2", BENCH), task("t3", "generalist", after=["t1"])),
        decision(task("t1", SHOP)),
    )
    says.agent("t1", Answer("I can't."), LOOK)
    says.agent("t2", LOOK)
    says.reviewer(verdict("APPROVED"))
    says.qa(Answer("Fine [1][2]."))

    async with opened(graph_steps=7) as platform:
        told = await platform.ask("How is the disk?")
        missing = await reasons(platform, told)

    assert (told.status, told.codes) == ("succeeded", ["limit_reached"])
    assert list(missing) == ["do t3"]


async def test_a_run_ends_at_its_deadline(platform: Platform, says: ModelSays) -> None:
    says.supervisor(NEVER)

    told = await platform.ask("Take your time.", limits={"run_seconds": 0.3})

    assert told.status == "failed"
    assert told.codes[-1] in ("deadline_exceeded", "llm_timeout")


async def test_what_was_found_before_the_deadline_is_the_answer(platform: Platform, says: ModelSays) -> None:
    says.supervisor(decision(task("t1", BENCH), task("t2", BENCH, after=["t1"]), task("t3", BENCH, after=["t2"])))
    says.agent("t1", LOOK)
    says.agent("t2", NEVER)
    says.reviewer(verdict("APPROVED"))

    told = await finish_within(platform, await platform.accept("How is the disk?"), 2.0)

    missing = await reasons(platform, told)
    assert told.status == "succeeded"
    assert told.reply.startswith("the disk is fine [1]\n\nNot answered: do t2 (The run's time ran out.")
    assert missing["do t2"].startswith("The run's time ran out.")
    assert missing["do t3"] == "The run's time ran out."
    assert [citation.task_id for citation in (await platform.result(told.key)).citations] == ["t1"]


async def test_a_result_beside_a_task_that_takes_too_long_is_the_answer(platform: Platform, says: ModelSays) -> None:
    says.supervisor(decision(task("t1", BENCH), task("t2", "generalist")))
    says.agent("t1", LOOK)
    says.agent("t2", NEVER)
    says.reviewer(verdict("APPROVED"))

    told = await finish_within(platform, await platform.accept("How is the disk?"), 2.0)

    assert told.status == "succeeded"
    assert told.reply.startswith("the disk is fine [1]")


async def test_a_qa_that_takes_too_long_is_done_without(platform: Platform, says: ModelSays) -> None:
    says.supervisor(decision(task("t1", BENCH)))
    says.agent("t1", LOOK)
    says.reviewer(verdict("APPROVED"))
    says.qa(NEVER)

    told = await finish_within(platform, await platform.accept("How is the disk?"), 2.0)

    assert (told.status, told.reply) == ("succeeded", "the disk is fine [1]")


async def test_nothing_found_before_the_deadline_is_a_failure(platform: Platform, says: ModelSays) -> None:
    says.supervisor(decision(task("t1", "generalist")))
    says.agent("t1", NEVER)

    told = await finish_within(platform, await platform.accept("How is the disk?"), 1.5)

    assert told.status == "failed"
    assert (await reasons(platform, told))["do t1"].startswith("The run's time ran out.")


async def test_a_change_that_the_deadline_cut_off_waits_for_somebody_who_knows(
    platform: Platform, says: ModelSays, workbench: Workbench
) -> None:
    says.supervisor(decision(task("t1", SHOP), task("t2", BENCH)))
    says.agent("t1", calls(("wait", {"place": "cut off"})))
    says.agent("t2", LOOK)
    says.reviewer(verdict("APPROVED"))
    says.qa(Answer("Waited [1], fine [2]."))
    key = await platform.accept("Wait and look.")
    await platform.brain.execute(await platform.claim(key, run_seconds=5.0))

    await answer(platform, key, resolution="done", result="waited")
    told = await platform.finish(key)

    results = {result["task_id"]: result for result in told.of("task_result")}
    assert (results["t1"]["status"], results["t2"]["status"]) == ("approved", "approved")
    assert results["t1"]["summary"].startswith("waited\n")
    assert (told.status, told.reply) == ("succeeded", "Waited [1], fine [2].")
    assert workbench.done().count("wait cut off") == 1


async def test_a_run_that_is_resumed_with_no_time_left_tells_what_it_had_found(
    platform: Platform, says: ModelSays
) -> None:
    says.supervisor(decision(task("t1", BENCH), task("t2", BENCH, after=["t1"]), task("t3", BENCH, after=["t2"])))
    says.agent("t1", LOOK)
    says.agent("t2", NEVER)
    says.reviewer(verdict("APPROVED"))
    key = await platform.accept("How is the disk?")
    async with platform.living(key):
        await platform.model.received(4)

    told = await finish_within(platform, key, 0.001)

    missing = await reasons(platform, told)
    assert (told.status, told.codes) == ("succeeded", ["deadline_exceeded"])
    assert told.reply.startswith("the disk is fine [1]")
    assert "check what it may have changed" in missing["do t2"]
    assert missing["do t3"] == "The run's time ran out."


async def test_a_change_that_may_have_happened_is_neither_tried_nor_ordered_again(
    opened: Open, says: ModelSays, workbench: Workbench
) -> None:
    says.supervisor(decision(task("t1", SHOP)), decision(task("t1", SHOP)))
    says.agent("t1", calls(("wait", {"place": "too long"})))
    says.qa(Answer("Nobody knows whether it happened."))

    async with opened(tool_call_seconds=0.5) as platform:
        key = await platform.accept("Wait in the shop.")
        await live(platform, key)
        await answer(platform, key, resolution="give_up")
        told = await platform.finish(key)
        missing = await reasons(platform, told)

    assert workbench.done().count("wait too long") == 1
    assert len(told.of("task_result")) == 1
    assert (told.status, told.codes) == ("failed", ["outcome_unknown"])
    assert missing["do t1"].startswith("It isn't done again. The call of shop.wait was cut off")
    assert "Check what the tool changed" in missing["do t1"]
    second = platform.asked("You are the supervisor")[1]["messages"][1]["content"]
    assert "outcome_unknown&quot;: true" in second


async def test_a_read_that_takes_too_long_may_be_tried_again(opened: Open, says: ModelSays) -> None:
    says.supervisor(decision(task("t1", BENCH)))
    says.agent("t1", calls(("wait", {"place": "read too long"})), LOOK)
    says.reviewer(verdict("APPROVED"))
    says.qa(Answer("Fine [1]."))

    async with opened(tool_call_seconds=0.5) as platform:
        told = await platform.ask("Look.")

    assert (told.status, told.of("task_result")[0]["attempt"]) == ("succeeded", 2)
