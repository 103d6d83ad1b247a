"""Which results are reviewed and by whom, how many models that costs, and which of them a supervisor asks."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from architect.spec_format import team_of
from starling.core.agents import LLMAgentConfig
from starling.core.errors import StarlingError
from starling.core.principal import Principal, Scope
from starling.core.runs import RunConfig
from starling.infra.postgres.audit import Actor
from tests.integration.brain.conftest import Open
from tests.support.interrupted_runs import answer_interrupts, execute_run
from tests.support.model_script import Answer, Body, Rule, When
from tests.support.model_server import ModelServer
from tests.support.platform import (
    BENCH,
    CALLER,
    SHOP,
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

ACTOR = Actor.local("test")
GOOD, BAD = verdict("APPROVED"), verdict("REJECTED", "It is wrong.")
LOOK, CHANGE = calls(("look", {"thing": "disk"})), calls(("change", {"thing": "door"}))
ROLES = {
    "model_reasoning": ("scripted:big",),
    "model_router": ("scripted:small",),
    "model_supervisor": ("scripted:chief",),
}
RUNTIMES = ["native", "crewai"]


async def create(platform: Platform, name: str = "looker", **fields: Any) -> None:
    tools = fields.pop("tools", ("bench.look", "shop.change"))
    document = {"id": name, "behavior_template": f"You are {name}.", "tools": tools, **fields}
    await platform.services.agents.create(CALLER, LLMAgentConfig.model_validate(document), ACTOR)


def reviews(platform: Platform) -> list[Body]:
    return [body for body in platform.model.bodies if When(schema="verdict").fits(body)]


def one_task(script: ScriptedModel, *answers: Answer, agent: str = BENCH) -> None:
    script.run(decision(task("t1", agent)), t1=answers, qa=Answer("Fine [1]."))


def server(workbench: Workbench, **options: Any) -> Mapping[str, Any]:
    return {"url": workbench.url, "x-starling": {"effect": "read", **options}}


async def in_waves(platform: Platform, script: ScriptedModel, *waves: int, **config: Any) -> RunStream:
    """Ask for two looks; answer the calls of models in waves, each of which is there before one of it is answered."""
    both = decision(task("t1", BENCH), task("t2", SHOP))
    script.run(both, t1=LOOK, t2=calls(("look", {"thing": "fan"})), qa=Answer("Fine [1] [2]."))
    script.held = True
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        run = group.create_task(platform.ask("Look at both.", **config))
        for number, count in enumerate(waves):
            begun = sum(waves[:number])
            await platform.model.received(begun + count)
            for gate in range(begun, begun + count):
                platform.model.release(str(gate + 1))
    assert len(platform.model.bodies) == sum(waves)
    return run.result()


# What two specialists cost


async def test_two_specialists_take_six_calls_four_in_sequence(platform: Platform, script: ScriptedModel) -> None:
    stream = await in_waves(platform, script, 1, 2, 2, 1)

    assert (stream.status, stream.done["usage"]["model_calls"]) == ("succeeded", 6)


async def test_two_that_only_read_take_four_calls_three_in_sequence_with_risky(
    opened: Open, script: ScriptedModel, workbench: Workbench
) -> None:
    both = {"bench": workbench.as_server("read"), "shop": workbench.as_server("read")}
    async with opened(servers=both) as platform:
        stream = await in_waves(platform, script, 1, 2, 1, reflect="risky")

    assert (stream.status, stream.done["usage"]["model_calls"]) == ("succeeded", 4)
    assert stream.of("reflection") == []
    assert [event["status"] for event in stream.of("task_result")] == ["approved", "approved"]


# What is reviewed


@pytest.mark.parametrize(
    ("call", "wanted", "count"),
    [
        (LOOK, None, 1), (LOOK, "always", 1), (LOOK, "risky", 0), (LOOK, "never", 0),
        (CHANGE, None, 1), (CHANGE, "risky", 1), (CHANGE, "never", 0),
        (calls(("look", {"thing": "disk"}), ("change", {"thing": "door"})), "risky", 1),
        (calls(("fail", {"why": "stuck"}), ("look", {"thing": "disk"})), "risky", 1),
    ],
)  # fmt: skip
async def test_request_alone_says_what_is_reviewed_where_nobody_else_does(
    platform: Platform, script: ScriptedModel, call: Answer, wanted: str | None, count: int
) -> None:
    """Tools of the shop are unsafe, those of the bench only read."""
    one_task(script, call, agent=SHOP if call is not LOOK else BENCH)

    stream = await platform.ask("Do it.", **({"reflect": wanted} if wanted else {}))

    assert (stream.status, len(reviews(platform)), len(stream.of("reflection"))) == ("succeeded", count, count)


async def test_second_attempt_that_only_reads_is_risky_where_the_first_changed_something(
    platform: Platform, script: ScriptedModel
) -> None:
    script.supervisor(decision(task("t1", SHOP)), decision())
    script.agent("t1", CHANGE, LOOK)
    script.reviewer(BAD, GOOD)
    script.qa(Answer("Fine [1]."))

    stream = await platform.ask("Do it.", reflect="risky")

    assert [event["status"] for event in stream.of("reflection")] == ["REJECTED", "APPROVED"]


@pytest.mark.parametrize("wrong", ["ALWAYS", "sometimes", "", True, 1, ["never"], {"t1": "never"}])
@pytest.mark.parametrize("member", ["reflect", "replan"])
def test_wrong_policy_is_no_policy(member: str, wrong: object) -> None:
    with pytest.raises(ValidationError, match=member):
        RunConfig.model_validate({member: wrong})


# policies of the tool, of the agent and of the request; how often is reviewed
POLICIES = [
    ("always", None, "never", 1),
    ("never", "always", None, 0),  # that of a tool comes first
    ("never", "never", "always", 1),
    (None, "always", "never", 1),
    (None, "risky", "never", 0),
]


CASES = [
    *(("native", policies, count) for *policies, count in POLICIES),
    *((runtime, policies, count) for runtime in RUNTIMES[1:] for *policies, count in (POLICIES[0], POLICIES[4])),
]


@pytest.mark.parametrize(("runtime", "policies", "count"), CASES)
async def test_policies_of_tools_agents_and_requests(
    opened: Open,
    script: ScriptedModel,
    workbench: Workbench,
    *,
    runtime: str,
    policies: tuple[str | None, str | None, str | None],
    count: int,
) -> None:
    tool, agent, asked = policies
    tools = {"look": {"reflect": tool}} if tool else {}
    one_task(script, LOOK, Answer("It is fine."), agent="looker")
    async with opened(servers={"bench": server(workbench, tools=tools)}) as platform:
        policy = {"reflect": agent} if agent else {}
        await create(platform, tools=("bench.look",), runtime=runtime, **policy)
        stream = await platform.ask("Look.", **({"reflect": asked} if asked else {}))

    assert (stream.status, len(reviews(platform))) == ("succeeded", count)


async def test_policy_of_a_whole_server_and_that_of_one_tool(
    opened: Open, script: ScriptedModel, workbench: Workbench
) -> None:
    tools = {"look": {"reflect": "never"}}
    script.run(
        decision(task("t1", BENCH), task("t2", BENCH)),
        t1=LOOK, t2=calls(("measure", {"thing": "door", "size": 3})), qa=Answer("Fine [1] [2]."),
    )  # fmt: skip
    async with opened(servers={"bench": server(workbench, reflect="always", tools=tools)}) as platform:
        stream = await platform.ask("Look and measure.")
        again = await platform.ask("Look and measure.", thread="again", reflect="never")

    for one in (stream, again):
        assert [event["task_id"] for event in one.of("reflection")] == ["t2"]


@pytest.mark.parametrize("fields", [{"enable_self_reflection": True}, {"reflection_agent_id": "critic"}])
@pytest.mark.parametrize("tool", ["never", None])
async def test_self_reflection_and_a_reviewer_mean_always(
    opened: Open, script: ScriptedModel, workbench: Workbench, fields: dict[str, Any], tool: str | None
) -> None:
    tools = {"look": {"reflect": tool}} if tool else {}
    table = {"modes": {"MODERATE": {"review": "never"}}}
    one_task(script, LOOK, agent="looker")
    async with opened(servers={"bench": server(workbench, tools=tools)}, tracing={"governance": table}) as platform:
        await create(platform, "critic", tools=())
        await create(platform, tools=("bench.look",), reflect="never", **fields)
        stream = await platform.ask("Look.", reflect="never")

    [event] = stream.of("reflection")
    assert (stream.status, event["agent"], event["status"]) == ("succeeded", "looker", "APPROVED")


async def test_false_self_reflection_changes_nothing(platform: Platform, script: ScriptedModel) -> None:
    await create(platform, enable_self_reflection=False)
    one_task(script, LOOK, agent="looker")

    await platform.ask("Look.")
    await platform.ask("Look.", thread="again", reflect="never")

    assert len(reviews(platform)) == 1


# Who reviews


@pytest.mark.parametrize("archived", [False, True])
async def test_reviewer_is_asked_with_its_instruction_and_its_own_model(
    opened: Open, script: ScriptedModel, *, archived: bool
) -> None:
    """Also where it is archived after its agent was made: then somebody reviews."""
    one_task(script, LOOK, agent="looker")
    async with opened(roles=ROLES) as platform:
        await create(platform, "critic", tools=(), llm_model="scripted:critic")
        await create(platform, reflection_agent_id="critic", reflect="never")
        if archived:
            await platform.services.agents.archive(CALLER, "critic", ACTOR)
        stream = await platform.ask("Look.", reflect="never")

    assert len(stream.of("reflection")) == (1 if stream.status == "succeeded" else 0)
    if not archived:
        [asked] = reviews(platform)
        assert (asked["model"], "You are critic." in str(asked["messages"])) == ("critic", True)


@pytest.mark.parametrize("reviewer", ["nobody", "coder", BENCH])
async def test_reviewer_that_is_no_custom_agent_is_refused(platform: Platform, reviewer: str) -> None:
    with pytest.raises((StarlingError, ValidationError)):
        await create(platform, reflection_agent_id=reviewer)


async def test_reviewer_of_another_tenant_is_refused(platform: Platform) -> None:
    other = Principal("elsewhere", "", frozenset(Scope))
    critic = LLMAgentConfig(id="critic", behavior_template="You judge.")
    await platform.services.agents.create(other, critic, ACTOR)

    with pytest.raises(StarlingError):
        await create(platform, reflection_agent_id="critic")


async def test_rejection_of_the_reviewer_is_told_to_its_agent(platform: Platform, script: ScriptedModel) -> None:
    await create(platform, "critic", tools=())
    await create(platform, reflection_agent_id="critic")
    script.supervisor(decision(task("t1", "looker")))
    script.agent("t1", LOOK)
    script.reviewer(verdict("REJECTED", "The disk is round."), GOOD)
    script.qa(Answer("Fine [1]."))

    stream = await platform.ask("Look.", reflect="never")

    assert [event["status"] for event in stream.of("reflection")] == ["REJECTED", "APPROVED"]
    assert any("The disk is round." in str(body) for body in platform.model.bodies if body.get("tools"))


async def test_results_of_members_have_the_policy_of_their_spec(platform: Platform, script: ScriptedModel) -> None:
    """`always` unless it says otherwise; the result of the team itself has none, so the request's holds."""
    members = [
        {"name": name, "role": "Looker", "goal": f"Look ({name}).", "server": "bench", "tools": ["bench.look"],
         "runtime": "native", **policy}
        for name, policy in (("usual", {}), ("risky", {"reflect": "risky"}), ("free", {"reflect": "never"}))
    ]  # fmt: skip
    spec = team_of({"name": "lookers", "purpose": "Looks.", "members": members})
    await platform.services.teams.add(CALLER, spec.name, spec, ACTOR)
    await platform.services.teams.activate(CALLER, spec.name, None, ACTOR)
    names = ("usual", "risky", "free")
    inside = decision(*(task(f"m{number}", name) for number, name in enumerate(names)))
    script.run(
        decision(task("t9", "lookers")), inside, m0=LOOK, m1=LOOK, m2=LOOK, qa=Answer("Fine [1] [2] [3].")
    )  # fmt: skip

    stream = await platform.ask("Look.", reflect="never")

    assert stream.status == "succeeded"
    assert [event["path"] for event in stream.of("reflection")] == ["t9/m0"]


# What is counted


async def test_fix_counts_once_and_what_is_not_reviewed_not_at_all(platform: Platform, script: ScriptedModel) -> None:
    await create(platform, reflect="never")
    script.supervisor(decision(task("t1", BENCH), task("t2", "looker")))
    script.agent("t1", LOOK)
    script.agent("t2", LOOK)
    script.reviewer(BAD, verdict("FIXED", refined="The disk is very fine."), GOOD)
    script.qa(Answer("Fine [1] [2]."))

    stream = await platform.ask("Look twice.")
    specialist, own = [await platform.services.agents.show(CALLER, name) for name in (BENCH, "looker")]
    elsewhere = await platform.services.agents.show(Principal("elsewhere", "", frozenset(Scope)), BENCH)

    assert stream.status == "succeeded"
    assert specialist.verdicts == {"APPROVED": 0, "FIXED": 1, "REJECTED": 1}
    assert set(own.verdicts.values()) == set(elsewhere.verdicts.values()) == {0}


async def test_result_without_a_verdict_teaches_no_skill(platform: Platform, script: ScriptedModel) -> None:
    one_task(script, LOOK)

    for reflect, thread in (("never", "one"), ("never", "two"), ("always", "three")):
        stream = await platform.ask("Look at the disk.", thread=thread, reflect=reflect)
        [result] = stream.of("task_result")
        assert result["skills"] == []
    [result] = (await platform.ask("Look at the disk.", thread="four")).of("task_result")
    assert result["skills"]


# Which model is asked


async def test_supervisor_without_a_model_of_its_own_asks_that_of_reasoning(
    opened: Open, script: ScriptedModel
) -> None:
    script.supervisor(decision(reply="Two."))
    roles = {name: models for name, models in ROLES.items() if name != "model_supervisor"}
    async with opened(roles=roles) as platform:
        await platform.ask("What is one and one?")

    assert [body["model"] for body in platform.model.bodies] == ["big"]


async def test_supervisors_model_that_is_away_is_replaced_by_another_with_a_warning(
    opened: Open, script: ScriptedModel
) -> None:
    script.rules.append(Rule(Answer(status=503, body="{}"), When(model="chief")))
    script.supervisor(decision(reply="Two."))
    async with opened(roles=ROLES) as platform:
        stream = await platform.ask("What is one and one?")

    assert stream.reply == "Two."
    assert "model" in stream.codes


async def test_supervisors_of_teams_ask_the_supervisors_model_and_members_theirs(
    opened: Open, script: ScriptedModel
) -> None:
    members = [
        {"name": role, "role": "Looker", "goal": f"Look ({role}).", "server": "bench", "tools": ["bench.look"],
         "runtime": "native", "model_role": role}
        for role in ("reasoning", "router")
    ]  # fmt: skip
    spec = team_of({"name": "lookers", "purpose": "Looks.", "members": members})
    inside = decision(task("m1", "reasoning"), task("m2", "router"))
    script.run(decision(task("t9", "lookers")), inside, m1=LOOK, m2=LOOK, qa=Answer("Fine [1] [2]."))
    async with opened(roles=ROLES) as platform:
        await platform.services.teams.add(CALLER, spec.name, spec, ACTOR)
        await platform.services.teams.activate(CALLER, spec.name, None, ACTOR)
        stream = await platform.ask("Look.")

    asked = [body["model"] for body in platform.model.bodies if When(schema="supervisor_decision").fits(body)]
    working = {body["model"] for body in platform.requests_containing('<task id="m1">') if body.get("tools")}
    assert (stream.status, asked, working) == ("succeeded", ["chief", "chief"], {"big"})


async def test_policies_hold_for_a_run_that_waited(
    database_url: str, model: ModelServer, script: ScriptedModel, workbench: Workbench, tmp_path: Path
) -> None:
    """The call that a person approved was made in another process than the review."""
    one_task(script, CHANGE, agent=SHOP)
    servers = {"shop": {"url": workbench.url, "x-starling": {"approval": "always"}}}
    async with open_platform(database_url, model, servers, tmp_path) as platform:
        key = await platform.accept("Change.", reflect="risky")
        await execute_run(platform, key)
        await answer_interrupts(platform, key, approved=True)
    async with open_platform(database_url, model, servers, tmp_path) as platform:
        stream = await platform.finish(key)

    assert (stream.status, len(stream.of("reflection"))) == ("succeeded", 1)
