"""Wordings of prompts: taken from Langfuse by a reload, pinned by epochs, kept while Langfuse is away."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from brain.prompts import divided, program_text, prompt
from mcp_gateway.configuration.servers import read_config, server_of
from starling.app.registry.service import RegistryReport
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.listing import PromptFilter, RunFilter
from starling.infra.prompts import langfuse
from tests.support.interrupted_runs import answer_interrupts, execute_run
from tests.support.langfuse_server import LangfuseServer
from tests.support.model_server import ModelServer
from tests.support.platform import Platform, ScriptedModel, Workbench, decision, open_platform

ACTOR = Actor.local("cli")
OWN = divided(program_text("supervisor"))[0]
NEW = f"{OWN}\nPlan as a captain."
BROKEN = "Plan. {{mood}}"


@pytest.fixture
async def langfuse_server() -> AsyncGenerator[LangfuseServer]:
    async with LangfuseServer() as server:
        yield server


@pytest.fixture
def another(database_url: str, model: ModelServer, langfuse_server: LangfuseServer, tmp_path: Path) -> Any:
    """Open one more platform on the same database, with Langfuse."""
    reached = langfuse_server.settings

    def opened(**settings: Any) -> AbstractAsyncContextManager[Platform]:
        return open_platform(database_url, model, {}, tmp_path, tracing={**reached, **settings})

    return opened


@pytest.fixture
async def platform(another: Any) -> AsyncGenerator[Platform]:
    async with another() as platform:
        yield platform


async def plan(platform: Platform) -> RegistryReport:
    return await platform.services.registry.plan(config_of(platform))


async def reload(platform: Platform) -> RegistryReport:
    return await platform.services.registry.reload(config_of(platform), ACTOR, with_prompts=True)


def config_of(platform: Platform) -> Any:
    assert platform.settings.mcp_config is not None
    return read_config(platform.settings.mcp_config)


async def wordings_of(platform: Platform, key: RunKey) -> list[Any]:
    steps = await platform.services.runs.reader.steps(key)
    return [step.metadata["prompt"] for step in steps if step.type == "llm_call"]


async def test_wording_that_a_plan_shows_and_a_reload_takes_is_named_in_the_runs_that_use_it(
    platform: Platform, script: ScriptedModel, langfuse_server: LangfuseServer
) -> None:
    script.supervisor(decision(reply="Hello."))
    version = langfuse_server.publish("agent_orchestrator", NEW, "production")

    planned = await plan(platform)
    before = await platform.ask("Hello?", thread="a")
    done = await reload(platform)
    after = await platform.ask("Hello?", thread="b")

    assert planned.changes == done.changes
    assert planned.changes.prompts.changed == ("supervisor",)
    assert done.prompts["supervisor"].before == prompt("supervisor").used
    assert [one["source"] for one in await wordings_of(platform, before.key)] == ["local"]
    [used] = await wordings_of(platform, after.key)
    place = (used["source"], used["version"], used["label"], used["hash"] == prompt("supervisor").used.hash)
    assert place == ("langfuse", version, "production", False)
    assert not (await plan(platform)).changes


async def test_run_that_waits_through_a_reload_keeps_its_wording(
    platform: Platform, script: ScriptedModel, langfuse_server: LangfuseServer
) -> None:
    script.supervisor(decision(question="Which one?"), decision(reply="Hello."))
    waiting = await platform.accept("Hello?")
    await execute_run(platform, waiting)
    langfuse_server.publish("agent_orchestrator", NEW, "production")
    await reload(platform)
    await answer_interrupts(platform, waiting, answer="The first.")

    assert (await platform.finish(waiting)).reply == "Hello."
    assert [one["source"] for one in await wordings_of(platform, waiting)] == ["local"] * 2


async def test_generation_is_linked_to_the_version_in_langfuse(
    another: Any, script: ScriptedModel, langfuse_server: LangfuseServer
) -> None:
    script.supervisor(decision(reply="Hello."))
    langfuse_server.publish("agent_orchestrator", "Old.", "production")
    langfuse_server.publish("agent_orchestrator", NEW, "production")

    async with another() as platform:
        await reload(platform)
        await platform.ask("Hello?")

    generation = langfuse_server.one("chat scripted:small")
    assert generation["langfuse.observation.prompt.name"] == "agent_orchestrator"
    assert generation["langfuse.observation.prompt.version"] == 2


@pytest.mark.parametrize("away", ["stopped", "silent", "garbage", "wrong keys"])
async def test_texts_stay_while_langfuse_has_no_usable_answer(
    another: Any, langfuse_server: LangfuseServer, monkeypatch: pytest.MonkeyPatch, away: str
) -> None:
    langfuse_server.publish("agent_orchestrator", NEW, "production")
    async with another() as platform:
        await reload(platform)
    if away == "silent":
        monkeypatch.setattr(langfuse, "_ALL_SECONDS", 0.2)
    langfuse_server.silent = away == "silent"
    langfuse_server.answer = (200, "<html>") if away == "garbage" else None
    if away == "stopped":
        await langfuse_server.stop()

    async with another(**({"langfuse_secret_key": "no"} if away == "wrong keys" else {})) as platform:
        planned, done = await plan(platform), await reload(platform)
        pinned = (await platform.services.storage.epochs.active()).manifest.prompt_version("supervisor")

    assert not planned.changes
    assert not done.changes
    assert "can't be asked for prompts" in planned.prompt_warnings["langfuse"]
    assert (pinned.source, pinned.version) == ("langfuse", 1)


async def test_unusable_text_is_refused_with_the_reason_and_the_former_stays(
    platform: Platform, langfuse_server: LangfuseServer
) -> None:
    langfuse_server.publish("agent_orchestrator", NEW, "production")
    await reload(platform)
    langfuse_server.publish("agent_orchestrator", BROKEN, "production")

    planned, done = await plan(platform), await reload(platform)
    compared = [await platform.services.prompt_catalog.diff(name) for name in ("supervisor", "qa")]

    assert not planned.changes
    assert not done.changes
    assert planned.prompt_warnings["supervisor"].startswith(
        "Langfuse's `agent_orchestrator`, version 2, can't be used: It names the unknown variable {{mood}}"
    )
    assert [list(one.warnings) for one in compared] == [["supervisor"], []]


async def test_prompt_that_langfuse_no_longer_has_becomes_the_local_one_with_a_warning(
    platform: Platform, langfuse_server: LangfuseServer
) -> None:
    langfuse_server.publish("agent_orchestrator", NEW, "production")
    await reload(platform)
    langfuse_server.unpublish("agent_orchestrator")

    done = await reload(platform)

    assert done.changes.prompts.changed == ("supervisor",)
    assert done.prompts["supervisor"].after == prompt("supervisor").used
    assert "Langfuse has no `agent_orchestrator` with the label `production`" in done.prompt_warnings["supervisor"]


async def test_same_text_under_a_new_version_is_a_change(platform: Platform, langfuse_server: LangfuseServer) -> None:
    langfuse_server.publish("agent_orchestrator", NEW, "production")
    await reload(platform)
    langfuse_server.publish("agent_orchestrator", NEW, "production")

    done = await reload(platform)

    assert done.changes.prompts.changed == ("supervisor",)
    after = done.prompts["supervisor"].after
    assert after is not None
    assert after.version == 2


async def test_pulled_text_is_stored_and_taken_by_a_reload_while_langfuse_is_away(
    platform: Platform, script: ScriptedModel, langfuse_server: LangfuseServer
) -> None:
    script.supervisor(decision(reply="Hello."))
    catalog = platform.services.prompt_catalog
    langfuse_server.publish("agent_orchestrator", NEW, "production")

    pulled = await catalog.pull()
    before = await catalog.list()
    await langfuse_server.stop()
    done = await reload(platform)

    assert "+Plan as a captain." in pulled.changes["supervisor"].diff
    assert (before.epoch, before.prompts[0].hash) == (1, prompt("supervisor").used.hash)
    assert done.changes.prompts.changed == ("supervisor",)
    assert done.prompts["supervisor"].after == pulled.changes["supervisor"].after
    listed = {one.name: one.since for one in (await catalog.list()).prompts}
    assert (listed["supervisor"], listed["qa"]) == (2, 1)


async def test_runs_are_found_by_the_wording_that_they_used(
    platform: Platform, script: ScriptedModel, langfuse_server: LangfuseServer
) -> None:
    script.supervisor(decision(reply="Hello."))
    own = prompt("supervisor").used.hash
    runs = [await platform.ask("Hello?", thread="a")]
    langfuse_server.publish("agent_orchestrator", NEW, "production")
    await reload(platform)
    runs.append(await platform.ask("Hello?", thread="b"))
    langfuse_server.unpublish("agent_orchestrator")
    await reload(platform)
    runs.append(await platform.ask("Hello?", thread="c"))

    [new] = (await platform.services.runs.documents.read(runs[1].key)).prompts
    shown = await platform.services.prompt_catalog.show(str(new["hash"])[:8])

    first, second, third = (run.key.id for run in runs)
    assert (shown.text.partition("\n---\n")[0], shown.in_force) == (NEW, False)
    assert await found_by(platform, own) == [third, first]
    assert await found_by(platform, str(new["hash"])) == [second]
    assert await found_by(platform, prompt("coder").used.hash) == []


async def found_by(platform: Platform, digest: str) -> list[str]:
    which = RunFilter(prompt=PromptFilter(digest, await platform.services.storage.epochs.pinning_prompt(digest)))
    return [run.run_id for run in await platform.services.runs.listing.latest("default", limit=9, which=which)]


async def test_rollback_of_servers_keeps_prompts(
    platform: Platform, langfuse_server: LangfuseServer, workbench: Workbench
) -> None:
    langfuse_server.publish("agent_orchestrator", NEW, "production")
    extra = {**config_of(platform), "extra": server_of(workbench.as_server("read"))}
    await platform.services.registry.reload(extra, ACTOR, with_prompts=True)

    done = await platform.services.registry.rollback(1, ACTOR)

    pinned = (await platform.services.storage.epochs.active()).manifest.prompt_version("supervisor")
    assert done.changes.servers.removed == ("extra",)
    assert not done.changes.prompts
    assert (pinned.source, pinned.version) == ("langfuse", 1)


async def test_reload_of_a_watched_file_keeps_prompts(platform: Platform, langfuse_server: LangfuseServer) -> None:
    langfuse_server.publish("agent_orchestrator", NEW, "production")

    done = await platform.services.registry.reload(config_of(platform), Actor.local("file"))

    assert not done.changes
    assert langfuse_server.requested == []


async def test_start_keeps_texts_of_langfuse_and_takes_those_of_the_folder(
    another: Any, langfuse_server: LangfuseServer, tmp_path: Path
) -> None:
    folder = tmp_path / "prompts"
    folder.mkdir()
    langfuse_server.publish("agent_orchestrator", NEW, "production")
    async with another() as platform:
        await reload(platform)
    asked = len(langfuse_server.requested)
    (folder / "qa.md").write_text(f"{divided(program_text('qa'))[0]} Be brief.")
    (folder / "supervisor.md").write_text(f"{OWN} Local words.")
    (folder / "judge.md").write_text(BROKEN)

    async with another(prompts_dir=folder) as platform:
        manifest = (await platform.services.storage.epochs.active()).manifest
        used = await platform.services.storage.rosters.prompts((await platform.services.storage.epochs.active()).number)

    assert len(langfuse_server.requested) == asked
    assert manifest.prompt_version("supervisor").source == "langfuse"
    assert manifest.prompt_version("judge") == prompt("judge").used
    assert used["qa"].system.parts[-1].endswith("Be brief.")
