"""Builds that end before their time: nothing half-done is stored, and the name is free again."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

import pytest

from starling.app.access.keys import KeySpec
from starling.core.errors import NotFoundError
from starling.core.principal import HOST_ADMIN, Scope
from starling.core.teams.building import BuildRequest
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.interrupts import InterruptAnswer
from tests.integration.brain.conftest import Open
from tests.support.interrupted_runs import execute_run, open_interrupts
from tests.support.model_documents import design_json
from tests.support.model_script import Answer
from tests.support.platform import CALLER, Platform, ScriptedModel, calls, decision, task

REQUEST = BuildRequest(goal="Look at the disks.", name="watch")
CHANGE = BuildRequest(kind="version", goal="Look at the memory too.")
ACTOR = Actor.local("test")
ANSWERS_BEFORE = {"design": 0, "trial": 2}  # that are given before the phase begins; in a trial, its member works then

type Ending = Callable[[Platform, RunKey], Coroutine[Any, Any, object]]


@pytest.fixture
def script(script: ScriptedModel) -> ScriptedModel:
    script.designer(Answer(design_json("shop")))
    script.run(decision(task("t1", "looker")), t1=calls(("look", {"thing": "disk"})), qa=Answer("The disk is fine."))
    return script


@pytest.fixture
async def platform(opened: Open) -> AsyncGenerator[Platform]:
    async with opened() as platform:
        yield platform


async def build(platform: Platform) -> RunKey:
    return (await platform.services.builds.team(CALLER, REQUEST)).key


async def states(platform: Platform) -> list[str]:
    """Return the states of the versions of the team."""
    try:
        return [one.state for one in await platform.services.teams.versions(CALLER.tenant, "watch")]
    except NotFoundError:
        return []


async def cancel(platform: Platform, key: RunKey) -> None:
    await platform.services.runs.cancellation.cancel(key)


async def park(platform: Platform, key: RunKey) -> None:
    await platform.brain.park(await platform.claim(key))


@pytest.mark.parametrize("phase", ["design", "trial"])
@pytest.mark.parametrize(("ending", "status"), [(cancel, "cancelled"), (park, "parked")])
async def test_build_that_is_stopped_while_a_model_is_asked_stores_nothing_and_frees_its_name(
    platform: Platform, script: ScriptedModel, phase: str, ending: Ending, status: str
) -> None:
    script.held = True
    key = await build(platform)
    async with platform.executing(key) as life:
        for gate in range(1, ANSWERS_BEFORE[phase] + 1):
            platform.model.release(str(gate))
        await platform.model.received(ANSWERS_BEFORE[phase] + 1)
        if ending is cancel:
            await cancel(platform, key)
            await life
    if ending is park:
        await park(platform, key)

    stream = await platform.stream(key)

    assert (stream.status, stream.of("published"), await states(platform)) == (status, [], [])
    assert await build(platform)


@pytest.mark.parametrize(("ending", "status"), [(cancel, "cancelled"), (park, "parked")])
async def test_build_that_is_stopped_while_an_admin_is_asked_keeps_its_version_and_frees_its_name(
    platform: Platform, ending: Ending, status: str
) -> None:
    key = await build(platform)
    await execute_run(platform, key)
    (asked,) = await open_interrupts(platform, key)
    if ending is park:
        await platform.services.runs.interrupts.answer(
            key, [InterruptAnswer(asked.id, "resolved", {"approved": True})], ""
        )

    await ending(platform, key)
    stream = await platform.stream(key)

    assert (stream.status, await open_interrupts(platform, key)) == (status, [])
    assert ([one["state"] for one in stream.of("published")], await states(platform)) == (["unproven"], ["unproven"])
    assert await platform.services.builds.version(CALLER, "watch", CHANGE)


@pytest.mark.parametrize("phase", ["design", "trial"])
async def test_build_whose_time_runs_out_stores_nothing_and_frees_its_name(
    platform: Platform, script: ScriptedModel, phase: str
) -> None:
    script.held = True
    key = await build(platform)
    for gate in range(1, ANSWERS_BEFORE[phase] + 1):
        platform.model.release(str(gate))

    await platform.brain.execute(await platform.claim(key, run_seconds=1.5))
    stream = await platform.stream(key)

    assert (stream.status, stream.of("published"), stream.of("proof")) == ("failed", [], [])
    assert "time ran out" in stream.reply
    assert await states(platform) == []
    assert await build(platform)


async def test_build_whose_tokens_run_out_and_are_refused_stores_nothing_and_frees_its_name(opened: Open) -> None:
    async with opened(run_tokens=150) as platform:  # 18 for each answer: the second trial has none for its review
        key = await build(platform)
        await execute_run(platform, key)
        (asked,) = await open_interrupts(platform, key)
        await platform.services.runs.interrupts.answer(key, [InterruptAnswer(asked.id, "cancelled", {})], "somebody")
        stream = await platform.finish(key)

        assert (asked.kind, asked.path.partition("/")[0]) == ("budget", "t1.case-example_2")
        assert (stream.status, stream.of("published"), len(stream.of("proof"))) == ("budget_exhausted", [], 1)
        assert await states(platform) == []
        assert await build(platform)


async def test_build_whose_key_is_revoked_meanwhile_says_so_and_stores_nothing(
    platform: Platform, script: ScriptedModel
) -> None:
    script.held = True
    wish = KeySpec("maker", CALLER.tenant, frozenset({Scope.RUN, Scope.TEAMS}))
    made, _ = await platform.services.storage.keys.create(HOST_ADMIN, wish, ACTOR)
    maker = made.principal
    key = (await platform.services.builds.team(maker, REQUEST)).key
    run = asyncio.create_task(platform.finish(key))
    await platform.model.received(1)

    await platform.services.storage.keys.revoke(HOST_ADMIN, made.id, ACTOR)
    script.held = False
    platform.model.release("1")
    stream = await run

    assert (stream.status, stream.of("published"), await states(platform)) == ("failed", [], [])
    assert stream.reply.startswith(f"The key {made.id}, which this run was requested with, was revoked.")
