"""Which results are reviewed, by which model, and what is counted of the verdicts."""

from typing import Any

import pytest

from starling.core.agents import LLMAgentConfig
from starling.core.errors import NotFoundError
from starling.core.governance import GovernanceTable
from starling.core.principal import Principal, Scope
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.engine import fetch_autocommit
from tests.integration.brain.conftest import Open
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

LOOK = calls(("look", {"thing": "disk"}))
CHANGE = calls(("change", {"thing": "disk"}))
POET = {"id": "poet", "behavior_template": "You write haiku."}


async def create(platform: Platform, **config: Any) -> None:
    made = LLMAgentConfig.model_validate(config)
    await platform.services.agents.create(CALLER, made, Actor.local("test"))


def reviews(platform: Platform) -> int:
    """Return how many verdicts the model was asked for."""
    return len([body for body in platform.model.bodies if "verdict" in str(body.get("response_format"))])


async def test_two_reading_specialists_take_four_calls_where_risky_results_are_reviewed(
    platform: Platform, script: ScriptedModel
) -> None:
    plan = decision(task("t1", BENCH), task("t2", BENCH))
    script.run(plan, t1=LOOK, t2=LOOK, qa=Answer("All is well [1][2]."))

    always = await platform.ask("How is it?")
    asked_always = len(platform.model.bodies)
    risky = await platform.ask("How is it?", reflect="risky")

    asked = asked_always, len(platform.model.bodies) - asked_always
    assert (always.status, risky.status, asked) == ("succeeded", "succeeded", (6, 4))
    assert (len(always.of("reflection")), risky.of("reflection")) == (2, [])


async def test_risky_result_is_reviewed_and_a_harmless_one_beside_it_is_not(
    platform: Platform, script: ScriptedModel
) -> None:
    script.run(decision(task("t1", BENCH), task("t2", SHOP)), t1=LOOK, t2=CHANGE, qa=Answer("Done [1][2]."))

    stream = await platform.ask("Look, and change it.", reflect="risky")

    assert [(one["task_id"], one["agent"]) for one in stream.of("reflection")] == [("t2", SHOP)]


@pytest.mark.parametrize(
    ("server", "asked", "expected"),
    [
        (None, None, 1),
        (None, "never", 0),
        ("never", None, 0),
        ("never", "always", 1),
        ("risky", "never", 0),
        ("always", "never", 1),
    ],
)
async def test_policy_of_a_server_can_only_be_made_stricter_by_a_request(
    opened: Open,
    script: ScriptedModel,
    workbench: Workbench,
    server: str | None,
    asked: str | None,
    expected: int,
) -> None:
    options = {"effect": "read"} | ({"reflect": server} if server else {})
    servers = {"bench": {**workbench.as_server("read"), "x-starling": options}}
    script.run(decision(task("t1", BENCH)), t1=LOOK, qa=Answer("Fine [1]."))

    async with opened(servers=servers) as platform:
        stream = await platform.ask("How is it?", **({"reflect": asked} if asked else {}))

    assert (stream.status, len(stream.of("reflection"))) == ("succeeded", expected)


@pytest.mark.parametrize(
    ("config", "asked", "expected"),
    [
        ({}, "never", 0),
        ({"reflect": "never"}, None, 0),
        ({"reflect": "always"}, "never", 1),
        ({"enable_self_reflection": True}, "never", 1),
        ({"enable_self_reflection": True, "reflect": "never"}, "never", 1),
        ({"reflection_agent_id": "critic"}, "never", 1),
    ],
)
async def test_policy_of_a_custom_agent_can_only_be_made_stricter_by_a_request(
    platform: Platform, script: ScriptedModel, config: dict[str, Any], asked: str | None, expected: int
) -> None:
    script.run(decision(task("t1", "poet")), t1=Answer("Masts in morning mist."))
    await create(platform, id="critic", behavior_template="You count syllables.", llm_model="scripted/large")
    await create(platform, **POET, **config)

    stream = await platform.ask("Write a haiku.", **({"reflect": asked} if asked else {}))

    assert (stream.status, reviews(platform)) == ("succeeded", expected)


async def test_agent_that_demands_reviews_is_reviewed_though_its_tool_asks_for_none_by_another_model(
    opened: Open, script: ScriptedModel, workbench: Workbench
) -> None:
    servers = {"bench": {**workbench.as_server("read"), "x-starling": {"effect": "read", "reflect": "never"}}}
    script.run(decision(task("t1", "looker")), t1=LOOK, qa=Answer("Fine [1]."))
    async with opened(servers=servers) as platform:
        await create(platform, id="critic", behavior_template="You doubt.", llm_model="scripted/large")
        await create(platform, id="looker", tools=["bench.look"], reflection_agent_id="critic")

        await platform.ask("How is it?")

        asked = {body["model"] for body in platform.model.bodies if "verdict" in str(body.get("response_format"))}
    assert asked == {"large"}


@pytest.mark.parametrize(
    ("review", "asked", "expected"),
    [("always", "never", 2), ("risky", "never", 1), ("risky", None, 1), (None, "never", 0)],
)
async def test_governance_sets_the_policy_of_agents_without_one_and_the_least_that_is_reviewed(
    opened: Open, script: ScriptedModel, review: str | None, asked: str | None, expected: int
) -> None:
    table = GovernanceTable.model_validate({"modes": {"MODERATE": {"review": review}}} if review else {})
    script.run(decision(task("t1", BENCH), task("t2", SHOP)), t1=LOOK, t2=CHANGE, qa=Answer("Done [1][2]."))

    async with opened(tracing={"governance": table}) as platform:
        stream = await platform.ask("Look, and change it.", **({"reflect": asked} if asked else {}))

    assert (stream.status, len(stream.of("reflection"))) == ("succeeded", expected)


@pytest.mark.parametrize(("asked", "skills"), [(None, 1), ("never", 0)])
async def test_result_without_a_verdict_teaches_no_skill(
    platform: Platform, script: ScriptedModel, asked: str | None, skills: int
) -> None:
    script.run(decision(task("t1", BENCH, "Look at the left disk.")), t1=LOOK, qa=Answer("Fine [1]."))

    await platform.ask("How is the left disk?", **({"reflect": asked} if asked else {}))

    query = "SELECT count(*) FROM skills"
    assert await fetch_autocommit(platform.services.storage.engine, query, {}) == [(skills,)]


async def test_verdicts_are_counted_by_agent_and_tenant(platform: Platform, script: ScriptedModel) -> None:
    script.supervisor(decision(task("t1", BENCH)))
    script.agent("t1", LOOK)
    script.reviewer(verdict("REJECTED", "No."), verdict("APPROVED"))
    script.qa(Answer("Fine [1]."))
    other = Principal("another", "", frozenset(Scope))

    await platform.ask("How is it?")
    await platform.ask("And now?", thread="other")

    agents = platform.services.agents
    assert (await agents.show(CALLER, BENCH)).verdicts == {"APPROVED": 2, "FIXED": 0, "REJECTED": 1}
    assert (await agents.show(CALLER, SHOP)).verdicts == {"APPROVED": 0, "FIXED": 0, "REJECTED": 0}
    assert (await agents.show(other, BENCH)).verdicts == {"APPROVED": 0, "FIXED": 0, "REJECTED": 0}
    with pytest.raises(NotFoundError):
        await agents.show(CALLER, "nobody")
