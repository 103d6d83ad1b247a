"""Builds of teams as runs: published once, whenever the worker is lost, and activated by an admin's decision."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from starling.app.teams.publication import TeamPublication
from starling.core.teams.building import ACTIVATE_TEAM, BuildRequest
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.interrupts import InterruptAnswer
from tests.support.interrupted_runs import execute_run, open_interrupts
from tests.support.model_documents import design_json
from tests.support.model_script import Answer
from tests.support.platform import CALLER, Platform, ScriptedModel, calls, decision, task

GOAL = "Look at the disks."


@pytest.fixture
def script(script: ScriptedModel) -> ScriptedModel:
    """Have the member of the designed team look at what it is tried on."""
    script.run(decision(task("t1", "looker")), t1=calls(("look", {"thing": "disk"})), qa=Answer("The disk is fine."))
    return script


async def build(platform: Platform) -> RunKey:
    return (await platform.services.builds.team(CALLER, BuildRequest(goal=GOAL, name="watch"))).key


async def decide(platform: Platform, key: RunKey, **payload: Any) -> Any:
    """Have the local user answer the one approval that a run waits for; return the call that it is about."""
    (asked,) = await open_interrupts(platform, key)
    await platform.services.runs.interrupts.answer(key, [InterruptAnswer(asked.id, "resolved", payload)], "local")
    return asked.call


async def stored(platform: Platform) -> tuple[Sequence[str], Sequence[str]]:
    """Return the states of the team's versions, and its audited changes."""
    teams = platform.services.teams
    versions = await teams.versions(CALLER.tenant, "watch")
    changes = (await teams.history(CALLER.tenant, "watch")).changes
    return [one.state for one in versions], [entry.action for entry in changes]


def stop_at(patch: pytest.MonkeyPatch, method: str, *, committed: bool) -> asyncio.Event:
    """Have the first call of a method of the store never return; the event says that it was made, or committed."""
    original, reached = getattr(TeamPublication, method), asyncio.Event()

    async def stopping(store: TeamPublication, *arguments: Any) -> Any:
        if not reached.is_set():
            if committed:
                await original(store, *arguments)
            reached.set()
            await asyncio.Event().wait()
        return await original(store, *arguments)

    patch.setattr(TeamPublication, method, stopping)
    return reached


@pytest.mark.parametrize("committed", [False, True])
async def test_build_whose_worker_is_lost_at_its_publication_stores_and_activates_one_version(
    platform: Platform, script: ScriptedModel, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    script.designer(Answer(design_json("bench")))
    key, reached = await build(platform), stop_at(monkeypatch, "publish", committed=committed)

    async with platform.executing(key):
        await reached.wait()
    stream = await platform.finish(key)

    assert stream.status == "succeeded", stream.reply
    assert await stored(platform) == (["active"], ["team.build", "team.prove", "team.activate"])
    assert [(one["version"], one["state"]) for one in stream.of("published")] == [(1, "active")]
    assert len(stream.of("design")) == 1


@pytest.mark.parametrize("committed", [False, True])
async def test_build_whose_worker_is_lost_at_an_approved_activation_activates_once(
    platform: Platform, script: ScriptedModel, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    script.designer(Answer(design_json("shop")))
    key = await build(platform)
    await execute_run(platform, key)
    before = await stored(platform)
    call = await decide(platform, key, approved=True, note="Fine.")
    reached = stop_at(monkeypatch, "activate", committed=committed)

    async with platform.executing(key):
        await reached.wait()
    stream = await platform.finish(key)

    assert (call["name"], call["args"]["tools"]) == (ACTIVATE_TEAM, ["shop.look"])
    assert before == (["unproven"], ["team.build", "team.prove"])
    assert stream.status == "succeeded", stream.reply
    assert await stored(platform) == (["active"], ["team.build", "team.prove", "team.activate"])
    assert [one["state"] for one in stream.of("published")] == ["unproven", "active"]


async def test_build_whose_activation_is_not_approved_leaves_the_version_as_it_was(
    platform: Platform, script: ScriptedModel
) -> None:
    script.designer(Answer(design_json("shop")))
    key = await build(platform)
    await execute_run(platform, key)
    await decide(platform, key, approved=False, note="Not now.")

    stream = await platform.finish(key)

    assert await stored(platform) == (["unproven"], ["team.build", "team.prove"])
    assert "Not now." in stream.reply
