"""Runs whose tasks are worked on by teams: their checkpoints, questions, limits and interruptions."""

from collections.abc import AsyncGenerator

import pytest
from sqlalchemy import text

from architect.spec_format import team_of
from starling.core.agents import Persona
from starling.core.teams.stars import Member, StarSpec
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.runs.acceptance import RunKey
from tests.integration.brain.conftest import Open
from tests.support.interrupted_runs import answer_interrupts, execute_run, open_interrupts, wait_until_noted
from tests.support.model_script import Answer
from tests.support.platform import CALLER, Platform, ScriptedModel, Workbench, calls, decision, task, verdict

PERSONA = Persona(role="watcher", goal="look at machines")
BENCH_WORKER = Member(
    name="looker", persona=PERSONA, server="bench", tools=("bench.look", "bench.change"), runtime="native"
)
SHOP_WORKER = Member(
    name="changer", persona=PERSONA, server="shop", tools=("shop.change", "shop.wait"), runtime="native"
)
TEAM = StarSpec(name="machines", purpose="Looks after machines.", members=(BENCH_WORKER, SHOP_WORKER))
LOOK, CHANGE = calls(("look", {"thing": "disk"})), calls(("change", {"thing": "door"}))
TO_TEAM, TO_LOOKER, TO_CHANGER = task("t3", "machines"), task("t1", "looker"), task("t1", "changer")
_STORED = "SELECT checkpoint_ns FROM checkpoints WHERE thread_id = :run ORDER BY 1"
_LEFT = """
SELECT (SELECT count(*) FROM checkpoints) + (SELECT count(*) FROM checkpoint_blobs)
    + (SELECT count(*) FROM checkpoint_writes)"""


@pytest.fixture
async def platform(opened: Open) -> AsyncGenerator[Platform]:
    async with opened() as platform:
        await platform.activate(TEAM)
        yield platform


async def stored(platform: Platform, key: RunKey) -> list[str]:
    """The namespaces that a run has checkpoints in."""
    async with platform.services.storage.engine.connect() as connection:
        return list(await connection.scalars(text(_STORED), {"run": key.id}))


async def test_team_works_inside_the_run_and_leaves_no_checkpoint(
    platform: Platform, script: ScriptedModel, workbench: Workbench
) -> None:
    script.supervisor(decision(TO_TEAM), decision(TO_CHANGER))
    script.agent("t1", CHANGE)
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("The door is changed [1]."), Answer("It is changed [1]."))

    stream = await platform.ask("Change the door.")

    assert (stream.status, stream.reply, workbench.done()) == ("succeeded", "It is changed [1].", ["change door"])
    assert [event["path"] for event in stream.of("plan")] == ["", "t3"]
    assert [event["path"] for event in stream.of("task_start")] == ["t3", "t3/t1"]
    async with platform.services.storage.engine.connect() as connection:
        assert await connection.scalar(text(_LEFT)) == 0


@pytest.mark.parametrize("runtime", ["native", "crewai"])
async def test_texts_of_a_team_are_in_prompts_as_they_were_written(
    opened: Open, script: ScriptedModel, runtime: str
) -> None:
    role, instructions, goal = "role prompt '{secret.__class__}'", "{star.members} {0.__init__}", "{{secret}} %s $goal"
    member = {"name": "looker", "role": role, "goal": goal, "server": "bench", "runtime": runtime}
    spec = team_of({"name": "machines", "purpose": "Looks.", "instructions": instructions, "members": [member]})
    script.run(decision(TO_TEAM), decision(TO_LOOKER), t1=[LOOK, Answer("It is fine.")], qa=Answer("Fine [1]."))
    async with opened() as platform:
        await platform.services.teams.add(CALLER, spec.name, spec, Actor.local("test"))
        await platform.services.teams.activate(CALLER, spec.name, None, Actor.local("test"))
        stream = await platform.ask("Look.")

    (supervisor,) = platform.requests_containing(f'<team name="machines" purpose="Looks.">{instructions}</team>')
    asked = [body for body in platform.requests_containing('<task id="t1">') if "tools" in body]
    told: list[str] = [body["messages"][0]["content"] for body in asked]
    assert stream.status == "succeeded", stream.reply
    assert f"{role}: {goal}" in supervisor["messages"][1]["content"]
    assert told
    assert all(role in one and goal in one for one in told)


@pytest.mark.parametrize(("outer", "inner"), [("t3", "review"), ("t3", "star"), ("qa", "1"), ("supervisor", "1")])
async def test_ids_of_tasks_are_never_taken_for_places_of_the_star(
    platform: Platform, script: ScriptedModel, workbench: Workbench, outer: str, inner: str
) -> None:
    script.supervisor(decision(task(outer, "machines")), decision(task(inner, "changer")))
    script.agent(inner, CHANGE)
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("Done [1]."))

    stream = await platform.ask("Change the door.")

    assert (stream.status, workbench.done()) == ("succeeded", ["change door"])


async def test_question_of_a_team_counts_for_the_thread(platform: Platform, script: ScriptedModel) -> None:
    script.run(
        decision(TO_TEAM), decision(question="Which door?"), decision(TO_LOOKER), t1=LOOK, qa=Answer("Fine [1].")
    )
    key = await platform.accept("Look.")
    await execute_run(platform, key)
    await answer_interrupts(platform, key, answer="The red one.")

    stream = await platform.finish(key)

    async with platform.services.storage.engine.connect() as connection:
        asked = await connection.scalar(text("SELECT max(clarifications) FROM branches"))
    assert (stream.status, asked) == ("succeeded", 1)


async def test_crash_in_the_call_of_a_member_leaves_it_in_doubt_and_asks_no_model_again(
    platform: Platform, script: ScriptedModel, workbench: Workbench
) -> None:
    script.run(decision(TO_TEAM), decision(TO_CHANGER), t1=calls(("wait", {"place": "door"})), qa=Answer("Done [1]."))
    key = await platform.accept("Change the door.")
    async with platform.executing(key):
        await wait_until_noted("wait door", workbench.done)
    assert await stored(platform, key) == ["", "t3"]
    await execute_run(platform, key)
    (asked,) = await open_interrupts(platform, key)
    assert (asked.kind, asked.path) == ("in_doubt", "t3/t1")

    await answer_interrupts(platform, key, resolution="done", result="It was waited.")
    stream = await platform.finish(key)

    assert (stream.status, workbench.done()) == ("succeeded", ["wait door"])
    assert len(platform.model.requests) == 7  # two decisions, the member, two reviews, two answers


async def test_team_that_fails_before_it_resumes_its_member_ends_after_the_member(
    platform: Platform, script: ScriptedModel, workbench: Workbench
) -> None:
    script.supervisor(decision(TO_TEAM), decision(TO_LOOKER), decision(TO_CHANGER), decision())
    script.agent("t1", LOOK, calls(("wait", {"place": "door"})))
    script.reviewer(verdict("APPROVED"), verdict("REJECTED", "Wait for the door."))
    script.qa(Answer("Looked [1]."), Answer("It could not be done."))
    key = await platform.accept("Wait for the door.")
    async with platform.executing(key):
        await wait_until_noted("wait door", workbench.done)
    async with platform.services.storage.engine.begin() as connection:
        changed = "UPDATE journal SET request_hash = 'other' WHERE path = 't3.review' AND kind = 'answer'"
        await connection.execute(text(changed))

    stream = await platform.finish(key)

    assert stream.codes == ["journal_diverged"]
    results = [event for event in stream.events if event.type in ("tool_result", "task_result")]
    assert [event.data.get("path") or event.data["call_id"] for event in results] == [
        *("t3/t1.0.0", "t3/t1"),
        *("t3:2/t1.0.0", "t3:2/t1"),
        "t3",
    ]


async def test_approval_of_a_member_is_asked_by_the_run_and_answered_there(
    opened: Open, script: ScriptedModel, workbench: Workbench
) -> None:
    careful = SHOP_WORKER.model_copy(update={"approval": "effects"})
    inner = Member(name="inner", persona=PERSONA, team=TEAM.model_copy(update={"members": (careful,)}))
    script.supervisor(decision(task("t3", "outer")), decision(task("t2", "inner")), decision(TO_CHANGER))
    script.agent("t1", CHANGE)
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("Done [1]."))
    async with opened() as platform:
        await platform.activate(StarSpec(name="outer", purpose="Leads.", members=(inner,)))
        key = await platform.accept("Change the door.")
        await execute_run(platform, key)
        (asked,) = await open_interrupts(platform, key)
        assert (asked.kind, asked.path, workbench.done()) == ("approval", "t3/t2/t1", [])
        assert await stored(platform, key) == ["", "t3", "t3/t2"]

        await answer_interrupts(platform, key, approved=True)
        stream = await platform.finish(key)

    assert (stream.status, workbench.done()) == ("succeeded", ["change door"])


async def test_drained_platform_hands_over_a_run_before_the_call_of_a_teams_member(
    opened: Open, script: ScriptedModel, workbench: Workbench
) -> None:
    script.run(decision(TO_TEAM), decision(TO_CHANGER), t1=CHANGE, qa=Answer("Done [1]."))
    async with opened() as platform:
        await platform.activate(TEAM)
        script.held = True
        key = await platform.accept("Change the door.")
        async with platform.executing(key) as life:
            for gate in "12":
                platform.model.release(gate)
            await platform.model.received(3)
            platform.brain.drain()
            for gate in "345":
                platform.model.release(gate)
            assert await life is None
        assert (len(platform.model.requests), workbench.done()) == (3, [])  # no call that changes something begins
        script.held = False
    async with opened() as platform:
        stream = await platform.finish(key)

    assert (stream.status, workbench.done()) == ("succeeded", ["change door"])
    assert len(platform.model.requests) == 7


async def test_cancelled_run_stops_its_teams_at_every_level(platform: Platform, script: ScriptedModel) -> None:
    inner = Member(name="inner", persona=PERSONA, team=TEAM)
    await platform.activate(StarSpec(name="outer", purpose="Leads.", members=(inner,)))
    script.supervisor(decision(task("t3", "outer")), decision(task("t2", "inner")), decision(TO_LOOKER))
    script.agent("t1", Answer("never", hold="for ever"))
    key = await platform.accept("Look.")
    async with platform.executing(key) as life:
        await platform.model.received(4)
        await platform.services.runs.cancellation.cancel(key)
        await life

    stream = await platform.stream(key)

    assert stream.status == "cancelled"
    assert [event["path"] for event in stream.of("task_result")] == ["t3/t2/t1", "t3/t2", "t3"]


async def test_budget_of_the_run_is_asked_for_once_wherever_it_runs_out(
    platform: Platform, script: ScriptedModel
) -> None:
    script.run(decision(TO_TEAM), decision(TO_LOOKER), t1=LOOK, qa=Answer("Fine [1]."))
    key = await platform.accept("Look.", limits={"tokens": 20})
    await execute_run(platform, key)
    (asked,) = await open_interrupts(platform, key)
    assert (asked.kind, asked.path.split("/")[0]) == ("budget", "t3")

    await answer_interrupts(platform, key, tokens=10_000)

    assert (await platform.finish(key)).status == "succeeded"


async def test_reply_of_a_cancelled_run_names_what_a_team_changed_once(
    platform: Platform, script: ScriptedModel
) -> None:
    both = decision(TO_TEAM, task("t4", "generalist", after=["t3"]))
    script.run(
        both, decision(TO_CHANGER), t1=CHANGE, t4=Answer("never", hold="for ever"), qa=Answer("The door is changed.")
    )
    key = await platform.accept("Change the door, then tell.")
    async with platform.executing(key) as life:
        await platform.model.received(7)
        await platform.services.runs.cancellation.cancel(key)
        await life

    reply = (await platform.stream(key)).reply

    assert "t3: The door is changed." in reply
    assert "Changed already" not in reply
