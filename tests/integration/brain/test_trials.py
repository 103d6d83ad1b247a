"""Trials of teams inside a proof: interrupted, asked about, cancelled and continued like any other work of a run."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from sqlalchemy import text

from starling.core.teams.building import BuildRequest
from starling.core.teams.spec import TeamSpec
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.kill_switches import Target
from starling.infra.postgres.runs.acceptance import RunKey
from tests.integration.brain.conftest import Open
from tests.support.interrupted_runs import answer_interrupts, execute_run, open_interrupts
from tests.support.model_script import Answer
from tests.support.platform import CALLER, Platform, ScriptedModel, Workbench, calls, decision, task, verdict

SPEC: dict[str, Any] = {
    "name": "machines",
    "purpose": "Looks after machines.",
    "members": [
        {"name": "looker", "role": "looks", "goal": "Look.", "server": "bench", "tools": ["bench.look"]},
        {"name": "changer", "role": "changes", "goal": "Change.", "server": "shop", "tools": ["shop.change"]},
    ],
    "criteria": [{"id": "looked", "text": "It looks.", "kind": "tool_called", "value": "bench.look"}],
    "examples": [
        {
            "id": case,
            "input": f"Look, then change the {case} thing.",
            "criteria": ["looked"],
            "must_call": ["bench.look", "shop.change"],
        }
        for case in ("first", "second")
    ],
}
ANSWERS_OF_A_TRIAL = 6  # a decision, two members, two reviews, and the team's answer
LEFT = "SELECT (SELECT count(*) FROM ledger), (SELECT count(*) FROM checkpoints), (SELECT count(*) FROM skills)"
MEMBERS_ANSWERS = "SELECT count(*) FROM journal WHERE path LIKE '%case-first/t_' AND kind = 'answer'"


def spec(runtime: str = "native") -> TeamSpec:
    return TeamSpec.model_validate({**SPEC, "members": [{**member, "runtime": runtime} for member in SPEC["members"]]})


async def proof(platform: Platform, runtime: str = "native") -> RunKey:
    """Have a proof of a team accepted."""
    await platform.services.teams.add(CALLER, "machines", spec(runtime), Actor.local("test"))
    return (await platform.services.builds.proof(CALLER, "machines", None)).key


async def sources(platform: Platform) -> list[list[tuple[str, str]]]:
    """What answered the calls of each case of the last proof."""
    report = await platform.services.teams.proof(CALLER.tenant, "machines", 1)
    return [[(call.path, call.source) for call in case.trial.calls] for case in report.cases]


async def stored(platform: Platform, query: str) -> tuple[int, ...]:
    """Return the only row of a query of counts."""
    async with platform.services.storage.engine.connect() as connection:
        return tuple((await connection.execute(text(query))).one())


@pytest.fixture
async def platform(opened: Open) -> AsyncGenerator[Platform]:
    async with opened() as platform:
        yield platform


@pytest.fixture
def script(script: ScriptedModel) -> ScriptedModel:
    script.supervisor(decision(task("t1", "looker"), task("t2", "changer")))
    script.agent("t1", calls(("look", {"thing": "disk"})))
    script.agent("t2", calls(("change", {"thing": "door"})))
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("It is changed."))
    return script


@pytest.mark.parametrize("asked", [1, 6, 7, 12])
async def test_crash_between_the_steps_of_a_trial_repeats_only_the_answer_that_was_waited_for(
    opened: Open, script: ScriptedModel, workbench: Workbench, asked: int
) -> None:
    async with opened() as platform:
        script.held = True
        key = await proof(platform)
        async with platform.executing(key):
            for gate in range(1, asked):
                platform.model.release(str(gate))
            await platform.model.received(asked)
        script.held = False
        stream = await platform.finish(key)

        assert stream.status == "succeeded", stream.reply
        looked = [("t1.case-first/t1", "live"), ("t1.case-first/t2", "simulated")]
        assert (await sources(platform))[0] == looked
        assert workbench.done() == ["look disk"] * 2
        assert len(platform.model.requests) == 2 * ANSWERS_OF_A_TRIAL + 1
        assert await stored(platform, LEFT) == (0, 0, 0)


async def test_crashed_build_keeps_its_design_where_a_server_was_switched_off_since(
    opened: Open, script: ScriptedModel
) -> None:
    looker = {"name": "looker", "role": "looks", "goal": "Look.", "server": "bench", "tools": ["look"], "parts": [1, 2]}
    requests = [{"request": f"Look at the {thing}.", "contains": ["changed"]} for thing in ("disk", "door")]
    design = {"name": "machines", "purpose": "Looks.", "members": [looker], "examples": requests}
    script.designer(Answer(json.dumps(design)))
    script.supervisor(decision(task("t1", "looker")))
    async with opened() as platform:
        build = BuildRequest(goal="Look at a thing, then change a thing.", partial=True)
        script.held = True
        key = (await platform.services.builds.team(CALLER, build)).key
        async with platform.executing(key):
            platform.model.release("1")
            await platform.model.received(2)
        script.held = False
        await platform.services.storage.switches.off(Target("server", "shop"), "a test", Actor.local("test"))
        stream = await platform.finish(key)

    assert stream.status == "succeeded", stream.reply
    assert [event["state"] for event in stream.of("published")] == ["active"]
    assert sum("<goal>" in str(asked.body) for asked in platform.model.requests) == 1


async def test_judge_sees_what_calls_of_a_trial_returned(platform: Platform, script: ScriptedModel) -> None:
    judged = {"id": "true", "text": "It is true.", "kind": "judged"}
    examples = [{**example, "criteria": ["true"]} for example in SPEC["examples"]]
    asked = TeamSpec.model_validate({**spec().model_dump(), "criteria": [judged], "examples": examples})
    script.judge(Answer(json.dumps({"met": ["true"], "not_met": [], "reason": ""})))
    await platform.services.teams.add(CALLER, "machines", asked, Actor.local("test"))

    await platform.finish((await platform.services.builds.proof(CALLER, "machines", None)).key)

    report = await platform.services.teams.proof(CALLER.tenant, "machines", 1)
    shown = str(platform.requests_containing("<known_results>")[0])
    assert report.state == "unproven"  # what the changer does was simulated
    assert [call.member for call in report.cases[0].trial.calls] == ["looker", "changer"]
    assert 'result tool="bench.look"' in shown.replace("\\", "")
    assert "[simulated: " in shown


async def test_only_live_calls_of_a_trial_are_approved(
    opened: Open, script: ScriptedModel, workbench: Workbench
) -> None:
    address = {"url": workbench.url}
    servers = {
        "bench": address | {"x-starling": {"effect": "read", "approval": "always"}},
        "shop": address | {"x-starling": {"effect": "unsafe", "approval": "always"}},
    }
    async with opened(servers=servers) as platform:
        key = await proof(platform)
        for case in ("first", "second"):
            await execute_run(platform, key)
            (asked,) = await open_interrupts(platform, key)
            assert (asked.kind, asked.path, asked.call and asked.call["name"]) == (
                "approval",
                f"t1.case-{case}/t1",
                "bench.look",
            )
            await answer_interrupts(platform, key, approved=True)

        stream = await platform.finish(key)

    assert (stream.status, workbench.done()) == ("succeeded", ["look disk"] * 2)


@pytest.mark.parametrize("runtime", ["native", "crewai"])
async def test_cancelled_proof_ends_every_task_of_its_trial(
    platform: Platform, script: ScriptedModel, workbench: Workbench, runtime: str
) -> None:
    script.held = True
    key = await proof(platform, runtime)
    async with platform.executing(key) as life:
        platform.model.release("1")
        await platform.model.received(3)
        await platform.services.runs.cancellation.cancel(key)
        await life

    stream = await platform.stream(key)

    assert (stream.status, workbench.done()) == ("cancelled", [])
    assert {event["path"] for event in stream.of("task_result")} == {"t1", "t1.case-first/t1", "t1.case-first/t2"}


async def test_crash_in_a_trial_of_crewai_members_continues_them_and_changes_nothing(
    opened: Open, script: ScriptedModel, workbench: Workbench
) -> None:
    async with opened(tool_iterations=1) as platform:
        script.held = True
        key = await proof(platform, "crewai")
        async with platform.executing(key):
            platform.model.release("1")  # the decision
            await platform.model.received(3)
            for gate in "23":  # the first answers, once both members wait: else one could be asked twice before
                platform.model.release(gate)
            await platform.model.received(5)  # both are asked for their last words
            async with asyncio.timeout(60):
                while await stored(platform, MEMBERS_ANSWERS) != (2,):  # noqa: ASYNC110 - in Postgres
                    await asyncio.sleep(0.01)
        script.held = False
        stream = await platform.finish(key)

        assert stream.status == "succeeded", stream.reply
        assert [[source for _, source in case] for case in await sources(platform)] == [["live", "simulated"]] * 2
        assert len(platform.requests_containing('<task id="t1">')) == 2 * 2 + 1
        assert await stored(platform, LEFT) == (0, 0, 0)
