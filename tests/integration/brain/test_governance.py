"""What runs are allowed: in the main star, in running teams, by an epoch's table and by the service beside it."""

from collections.abc import Mapping
from typing import Any

import pytest

from starling.core.agents import LLMAgentConfig, Persona
from starling.core.errors import InvalidRequestError
from starling.core.forks import ForkChanges
from starling.core.governance import GovernanceTable
from starling.core.principal import DEFAULT_TENANT
from starling.core.runs import ForkRequest, RunStatus
from starling.core.teams.stars import Member, StarSpec
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.runs.acceptance import RunKey
from tests.integration.brain.conftest import Open
from tests.support.effect_recorder import AGENT, EffectRecorder
from tests.support.interrupted_runs import execute_run, open_interrupts
from tests.support.model_script import Answer
from tests.support.platform import (
    BENCH,
    CALLER,
    SHOP,
    Platform,
    ScriptedModel,
    Workbench,
    calls,
    decision,
    task,
    verdict,
)

ADMIN = Actor.local("test")
PERSONA = Persona(role="watcher", goal="look at machines")
LOOK, CHANGE = calls(("look", {"thing": "disk"})), calls(("change", {"thing": "door"}))


def governed(service: str | None = None, **table: Any) -> dict[str, Any]:
    return {"tracing": {"governance": GovernanceTable.model_validate(table), "brainstem_url": service}}


def of_tenant(**row: Any) -> dict[str, Any]:
    return {"tenants": {DEFAULT_TENANT: {"modes": {"MODERATE": row}}}}


def team(runtime: Any) -> StarSpec:
    tools = ("bench.look", "bench.change")
    looker = Member(name="looker", persona=PERSONA, server="bench", tools=tools, runtime=runtime)
    changer = Member(name="changer", persona=PERSONA, server="shop", tools=("shop.change",), runtime=runtime)
    return StarSpec(name="machines", purpose="Looks after machines.", members=(looker, changer))


async def roles(platform: Platform, key: RunKey) -> set[str]:
    document = await platform.services.runs.documents.read(key)
    return {call.role for call in document.model_calls()}


async def stored(platform: Platform, key: RunKey) -> Mapping[str, Any]:
    document: Any = (await platform.services.runs.documents.read(key, ())).governance
    return document


@pytest.mark.parametrize("runtime", ["native", "crewai"])
async def test_narrowed_row_of_a_tenant_holds_for_members_of_a_running_team(
    opened: Open, script: ScriptedModel, workbench: Workbench, runtime: str
) -> None:
    row = of_tenant(tools=["bench.look"], roles=["router"], max_tokens=77, iterations=1, temperature=0.1)
    script.supervisor(decision(task("t3", "machines")), decision(task("t1", "looker")))
    script.agent("t1", calls(("look", {"thing": "disk"}), ("change", {"thing": "door"})), Answer("The disk is fine."))
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("The disk is fine [1]."))
    async with opened(**governed(**row)) as platform:
        await platform.activate(team(runtime))
        stream = await platform.ask("Look, and change the door.")

        used = await roles(platform, stream.key)
    shown = [body for body in platform.requests_containing("look at machines") if "tools" in body]
    names = {tool["function"]["name"] for body in shown for tool in body["tools"]}
    planning = [body for body in platform.model.bodies if '<team name="machines"' in str(body)]
    assert shown
    assert names & {"look", "change", "wait"} == {"look"}
    assert workbench.done() == ["look disk"]
    assert {body["max_tokens"] for body in platform.model.bodies} == {77}
    assert {body["temperature"] for body in planning} == {0.1}
    assert all('name="changer" kind="member" state="degraded"' in str(body) for body in planning)
    assert used == {"router"}


async def test_agents_without_an_allowed_tool_are_left_out_and_the_supervisor_is_told(
    opened: Open, script: ScriptedModel
) -> None:
    script.supervisor(decision(reply="Nothing to do.", is_request_satisfied=True))
    async with opened(**governed(channels={"CHAT": {"effects": ["read"]}})) as platform:
        await platform.ask("Hi.")

    asked = str(platform.model.bodies[0])
    assert (BENCH in asked, SHOP in asked) == (True, False)
    assert "Only some tools may be called in this run" in asked


@pytest.mark.parametrize(("policy", "row"), [("never", "unsafe"), ("unsafe", "never")])
async def test_stricter_approval_of_server_and_row_holds(
    opened: Open, script: ScriptedModel, effects: EffectRecorder, policy: str, row: str
) -> None:
    script.supervisor(decision(task("t1", AGENT)))
    script.agent("t1", calls(("charge", {"what": "a"})))
    servers = {"effects": effects.as_server(approval=policy)}
    async with opened(servers=servers, **governed(modes={"MODERATE": {"approval": row}})) as platform:
        key = await platform.accept("Charge it.")
        await execute_run(platform, key)

        [question] = await open_interrupts(platform, key)
        status = (await platform.services.runs.documents.row(key)).status
    assert (question.kind, status, effects.done()) == ("approval", RunStatus.WAITING, [])


async def test_time_limit_of_the_row_ends_a_run(opened: Open, script: ScriptedModel) -> None:
    script.supervisor(Answer("{}", hold="never"))
    async with opened(**governed(modes={"MODERATE": {"seconds": 0.5}})) as platform:
        stream = await platform.ask("Hi.")
        platform.model.release("never")

    assert stream.status == "failed"  # the limits of the platform are 60 and 300 seconds
    assert stream.codes[0] in ("llm_timeout", "deadline_exceeded")


async def test_code_task_goes_to_the_coder_without_a_supervisor(platform: Platform, script: ScriptedModel) -> None:
    script.agent("t1", Answer("print(1)"))
    script.reviewer(verdict("APPROVED"))

    stream = await platform.ask("Print one.", channel="CODE_TASK")

    [route] = stream.of("route")
    assert (stream.reply, stream.codes) == ("print(1)", [])
    assert route["selected_agents"] == [{"agent": "coder", "task_id": "t1"}]
    assert (await roles(platform, stream.key)) == {"coding", "reasoning"}
    assert platform.requests_containing("<agents>") == []


async def test_agent_that_the_caller_names_comes_before_the_direct_one(
    platform: Platform, script: ScriptedModel
) -> None:
    script.agent("t1", Answer("One."))
    script.reviewer(verdict("APPROVED"))

    stream = await platform.ask("Count.", channel="CODE_TASK", agent="generalist")

    assert stream.of("route")[0]["selected_agents"][0]["agent"] == "generalist"


async def test_direct_agent_that_isnt_there_leaves_the_request_to_the_supervisor(
    opened: Open, script: ScriptedModel
) -> None:
    script.supervisor(decision(reply="Hello."))
    async with opened(**governed(channels={"CHAT": {"direct_agent": "nobody"}})) as platform:
        stream = await platform.ask("Hi.")

        kept = await stored(platform, stream.key)
    assert (stream.reply, stream.codes) == ("Hello.", ["governance"])
    assert "nobody" in stream.of("warning")[0]["message"]
    assert kept["row"]["direct_agent"] == ""


async def test_fork_gets_the_row_in_force_and_not_that_of_the_epoch_of_its_original(
    platform: Platform, script: ScriptedModel
) -> None:
    script.supervisor(decision(reply="Hello."))
    original = await platform.ask("Hi.")
    table = GovernanceTable.model_validate({"modes": {"MODERATE": {"max_tokens": 99}}})
    await platform.services.registry.reload(None, ADMIN, governance=table)
    request = ForkRequest(at="start", changes=ForkChanges(input="Hi again."))

    accepted = await platform.services.forks.accept(CALLER, original.key.id, request)
    fork = await platform.finish(RunKey(CALLER.tenant, accepted.started.run_id))

    assert [body["max_tokens"] for body in platform.model.bodies] == [4_096, 99]
    assert (await stored(platform, fork.key))["row"]["max_tokens"] == 99


async def test_models_of_agents_own_are_not_asked_where_their_role_is_not_allowed(
    opened: Open, script: ScriptedModel
) -> None:
    own = {"behavior_template": "You write haiku.", "llm_model": "scripted:large"}
    script.run(decision(task("t1", "poet")), t1=Answer("Masts in morning mist."))
    async with opened(**governed(modes={"MODERATE": {"roles": ["router"]}})) as platform:
        for config in ({"id": "critic"}, {"id": "poet", "reflection_agent_id": "critic"}):
            await platform.services.agents.create(CALLER, LLMAgentConfig.model_validate(own | config), ADMIN)

        stream = await platform.ask("Write a haiku.")

        asked = {body["model"] for body in platform.model.bodies}
    assert (stream.status, "large" in asked) == ("succeeded", False)


async def test_table_stays_until_a_reload_has_another_one(platform: Platform) -> None:
    registry, shows = platform.services.registry, platform.services.governance.show
    table = GovernanceTable.model_validate({"modes": {"MODERATE": {"seconds": 60}}})
    first = (await platform.services.storage.epochs.active()).number
    planned = await registry.plan(None, governance=table)
    await registry.reload(None, ADMIN, governance=table)
    await registry.reload(None, ADMIN, with_prompts=True)
    await registry.rollback(first, ADMIN)
    kept = (await shows()).table

    await registry.reload(None, ADMIN, governance=GovernanceTable())

    assert (bool(planned.changes), kept, (await shows()).table) == (True, table, GovernanceTable())


async def test_table_that_names_what_there_isnt_is_refused_with_the_places(platform: Platform) -> None:
    before = await platform.services.storage.epochs.active_number()
    table = GovernanceTable.model_validate(
        {
            "modes": {"MODERATE": {"tools": ["bench.fly", "bank.*", "shop.*"]}},
            "tenants": {"acme": {"channels": {"CHAT": {"direct_agent": "poet"}}}},
        }
    )
    said = (await platform.services.governance.check(table)).faults

    with pytest.raises(InvalidRequestError) as refused:
        await platform.services.registry.reload(None, ADMIN, governance=table)

    assert said == [
        "modes.MODERATE.tools: there is no server 'bank'",
        "modes.MODERATE.tools: there is no tool 'bench.fly'",
        "tenants.acme.channels.CHAT.direct_agent: there is no agent 'poet'",
    ]
    assert all(text in str(refused.value) for text in said)
    assert await platform.services.storage.epochs.active_number() == before
