"""What is changed in a fork holds in it alone, and a fork that is not live teaches nothing."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from brain.prompts import program_text
from brain.registry.repository import StoredPrompt
from starling.core.artifacts import artifact_id
from starling.core.forks import ForkChanges
from starling.core.json import digest
from starling.core.llm import PromptVersion
from starling.core.runs import ForkRequest
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.engine import fetch_autocommit
from starling.infra.postgres.runs.acceptance import RunKey
from tests.support.gateway_harness import SERVERS, python
from tests.support.mcp_servers.verbose import poem
from tests.support.model_script import Answer
from tests.support.model_server import ModelServer
from tests.support.platform import (
    BENCH,
    CALLER,
    Platform,
    RunStream,
    ScriptedModel,
    Workbench,
    calls,
    decision,
    open_platform,
    task,
    verdict,
)
from tests.support.team_specs import team_spec

LOOK = calls(("look", {"thing": "disk"}))
GOOD = verdict("APPROVED")
LINES = 500


@pytest.fixture
async def platform(
    database_url: str, model: ModelServer, workbench: Workbench, tmp_path: Path
) -> AsyncGenerator[Platform]:
    poet = python(SERVERS / "verbose.py", str(tmp_path / "said"), effect="read").model_dump(
        mode="json", by_alias=True, exclude_defaults=True
    )
    bard = {**poet, "x-starling": {"effect": "unsafe"}}
    servers = {"bench": workbench.as_server("read"), "poet": poet, "bard": bard}
    models = ("scripted:small", "scripted:large")
    async with open_platform(database_url, model, servers, tmp_path, models=models, tool_result_chars=1000) as platform:
        yield platform


async def fork(
    platform: Platform, original: RunStream, at: str = "start", *, live: bool = False, **changes: Any
) -> RunStream:
    platform.model.forget()
    request = ForkRequest(at=at, changes=ForkChanges(**changes), live=live)
    accepted = await platform.services.forks.accept(CALLER, original.key.id, request)
    return await platform.finish(RunKey(CALLER.tenant, accepted.started.run_id))


def one_task(script: ScriptedModel, agent: str = BENCH, text: str = "") -> None:
    script.supervisor(decision(task("t1", agent, text)))
    script.agent("t1", LOOK)
    script.reviewer(GOOD)
    script.qa(Answer("Fine [1]."))


async def test_other_models_are_asked_from_the_place_on(platform: Platform, script: ScriptedModel) -> None:
    one_task(script)
    original = await platform.ask("How is the disk?")
    assert {body["model"] for body in platform.model.bodies} == {"small"}

    stream = await fork(platform, original, "t1", model=dict.fromkeys(("router", "reasoning"), "scripted/large"))

    assert stream.status == "succeeded"
    assert {body["model"] for body in platform.model.bodies} == {"large"}
    origin: Any = (await platform.services.runs.documents.row(stream.key)).forked_from
    assert origin["changes"] == {"model": {"router": "scripted:large", "reasoning": "scripted:large"}}


async def test_stored_prompt_and_epoch_replace_those_of_the_original(platform: Platform, script: ScriptedModel) -> None:
    text = f"Plan as a captain. {program_text('supervisor')}"
    version = PromptVersion("supervisor", digest(text))
    await platform.services.storage.prompts.stored.store([StoredPrompt(text, version)])
    one_task(script)
    original = await platform.ask("How is the disk?")
    epoch = (await platform.services.storage.epochs.active()).number

    stream = await fork(platform, original, prompts={"supervisor": version.hash[:12]}, epoch=epoch)

    assert stream.status == "succeeded"
    assert "Plan as a captain." in platform.model.bodies[0]["messages"][0]["content"]
    row = await platform.services.runs.documents.row(stream.key)
    origin: Any = row.forked_from
    assert (row.epoch, origin["changes"]["prompts"]) == (epoch, {"supervisor": version.hash})


async def test_other_version_of_a_team_works_on_its_task(platform: Platform, script: ScriptedModel) -> None:
    for role in ("Looker", "Inspector"):
        member = {"name": "looker", "role": role, "goal": "Look.", "server": "bench", "tools": ["bench.look"]}
        spec = team_spec(member, name="crew")
        await platform.services.teams.add(CALLER, "crew", spec, Actor.local("test"))
    await platform.services.teams.activate(CALLER, "crew", 1, Actor.local("test"))
    script.supervisor(decision(task("t3", "crew")), decision(task("t1", "looker")))
    script.agent("t1", LOOK)
    script.reviewer(GOOD)
    script.qa(Answer("Fine [1]."))
    original = await platform.ask("How is the disk?")
    script.forget()
    script.supervisor(decision(task("t1", "looker")))
    script.agent("t1", LOOK)
    script.reviewer(GOOD)
    script.qa(Answer("Fine [1]."))

    stream = await fork(platform, original, "t3", teams={"crew": 2})

    assert stream.status == "succeeded"
    assert platform.requests_containing("Inspector")
    assert not platform.requests_containing("Looker")


async def test_skills_are_recalled_and_nothing_is_learned_unless_live(
    platform: Platform, script: ScriptedModel
) -> None:
    async def skills() -> list[Any]:
        query = "SELECT task, uses FROM skills ORDER BY id"
        return await fetch_autocommit(platform.services.storage.engine, query, {})

    one_task(script, text="Look at the left disk.")
    original = await platform.ask("How is the disk?")
    before = await skills()
    assert len(before) == 1

    stream = await fork(platform, original, "t1")

    assert [len(part["skills"]) for part in stream.of("task_result")] == [1]
    assert await skills() == before
    await fork(platform, original, "t1", live=True)
    assert await skills() != before


async def test_artifacts_of_inherited_results_are_those_of_the_fork_too(
    platform: Platform, script: ScriptedModel
) -> None:
    script.supervisor(decision(task("t1", "mcp_agent_poet"), task("t2", BENCH, after=["t1"])))
    script.agent("t1", calls(("recite", {"lines": LINES})))
    script.agent("t2", LOOK)
    script.reviewer(GOOD)
    script.qa(Answer("Fine [1][2]."))
    original = await platform.ask("Recite, then look.")

    stream = await fork(platform, original, "t2")

    [inherited, _] = stream.of("task_result")
    assert inherited["artifacts"] == [artifact_id(poem(LINES).encode())]
    whole = await platform.services.storage.artifacts.read(CALLER.tenant, stream.key.id, inherited["artifacts"][0])
    assert whole.content.decode() == poem(LINES)


async def test_fork_has_the_whole_of_a_long_result_that_it_was_given_in_place_of_a_call(
    platform: Platform, script: ScriptedModel
) -> None:
    script.supervisor(decision(task("t1", "mcp_agent_bard")))
    script.agent("t1", calls(("recite", {"lines": LINES})))
    script.reviewer(GOOD)
    script.qa(Answer("Fine [1]."))
    original = await platform.ask("Recite.")
    [cut] = original.of("tool_result")

    first = await fork(platform, original, "t1")
    second = await fork(platform, first, "t1")

    for stream in (first, second):
        [given] = stream.of("tool_result")
        assert (given["simulated"], given["artifact"]) == ("fixture", artifact_id(poem(LINES).encode()))
        assert given["result"].partition("\n")[2] == cut["result"]
        listed = await platform.services.storage.artifacts.of_run(CALLER.tenant, stream.key.id)
        assert [one.id for one in listed] == [given["artifact"]]
        whole = await platform.services.storage.artifacts.read(CALLER.tenant, stream.key.id, given["artifact"])
        assert whole.content.decode() == poem(LINES)


async def test_mode_and_channel_are_those_of_the_request_for_the_fork(
    platform: Platform, script: ScriptedModel
) -> None:
    one_task(script)
    original = await platform.ask("How is the disk?", mode="EXPLORATORY", channel="SYSTEM_HEALTH", agent=BENCH)

    configs: list[Any] = []
    for given in ({}, {"mode": "CONSERVATIVE", "channel": "CODE_TASK"}):
        request = ForkRequest.model_validate({"at": "start", **given})
        accepted = await platform.services.forks.accept(CALLER, original.key.id, request)
        row = await platform.services.runs.documents.row(RunKey(CALLER.tenant, accepted.started.run_id))
        configs.append(row.config)

    assert [(one["mode"], one["channel"], one["agent"]) for one in configs] == [
        ("MODERATE", "CHAT", BENCH),
        ("CONSERVATIVE", "CODE_TASK", BENCH),
    ]


async def test_audit_events_of_a_fork_name_its_original_and_not_the_request(
    platform: Platform, script: ScriptedModel
) -> None:
    script.supervisor(decision(reply="Hello."))
    original = await platform.ask("Hi.")

    stream = await fork(platform, original, input="And now?", epoch=1)

    query = "SELECT event_type, payload FROM audit_events WHERE payload ->> 'run_id' = %(run)s ORDER BY id"
    events = await fetch_autocommit(platform.services.storage.engine, query, {"run": stream.key.id})
    named = {"run": original.key.id, "at": "start", "changes": {"epoch": 1}, "live": False}
    assert [(kind, payload["forked_from"]) for kind, payload in events] == [
        ("run_started", named),
        ("run_completed", named),
    ]
