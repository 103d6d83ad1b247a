"""Which model is asked for what: that of supervisors, the small one for simple answers; and how many calls it takes."""

import pytest

from starling.core.forks import ForkChanges
from starling.core.governance import GovernanceTable
from starling.core.runs import ForkRequest
from starling.infra.postgres.runs.acceptance import RunKey
from tests.integration.brain.conftest import Open
from tests.support.model_script import Answer
from tests.support.platform import BENCH, Platform, ScriptedModel, calls, decision, task, verdict

pytestmark = pytest.mark.asyncio(loop_scope="module")

LOOK = calls(("look", {"thing": "disk"}))
TWO_MODELS = {"model_router": ["scripted:tiny"], "model_reasoning": ["scripted:large"]}


def asked(platform: Platform) -> list[str]:
    return [body["model"] for body in platform.model.bodies]


async def test_plain_question_takes_one_call(platform: Platform, script: ScriptedModel) -> None:
    script.supervisor(decision(reply="Seven days."))

    stream = await platform.ask("How many days has a week?")

    assert (stream.status, stream.reply, len(platform.model.bodies)) == ("succeeded", "Seven days.", 1)
    assert "plain general knowledge" in platform.model.bodies[0]["messages"][0]["content"]


async def test_supervisor_asks_the_models_that_are_set_for_it(opened: Open, script: ScriptedModel) -> None:
    script.run(decision(task("t1", BENCH)), t1=LOOK, qa=Answer("Fine [1]."))

    async with opened(roles=TWO_MODELS | {"model_supervisor": ["scripted:planner"]}) as platform:
        stream = await platform.ask("How is it?")

        assert asked(platform) == ["planner", "tiny", "large", "large"]
        assert platform.model.bodies[0]["temperature"] == pytest.approx(0.3)
    assert stream.status == "succeeded"


async def test_supervisor_asks_its_next_model_where_the_first_fails(opened: Open, script: ScriptedModel) -> None:
    script.supervisor(Answer(status=401), decision(reply="Hello."))

    async with opened(roles={"model_supervisor": ["scripted:planner", "scripted:other"]}) as platform:
        stream = await platform.ask("Hi.")

        assert (stream.reply, asked(platform)) == ("Hello.", ["planner", "other"])


@pytest.mark.parametrize(("is_simple", "small_or_large"), [(True, "tiny"), (False, "large")])
async def test_generalist_and_answer_use_the_small_model_where_the_decision_says_simple(
    opened: Open, script: ScriptedModel, *, is_simple: bool, small_or_large: str
) -> None:
    plan = decision(task("t1", "generalist"), task("t2", BENCH), is_simple=is_simple)
    script.run(plan, t1=Answer("Hello."), t2=LOOK, qa=Answer("Hello, all is fine [1][2]."))

    async with opened(roles=TWO_MODELS) as platform:
        await platform.ask("Say hello, and look.")

        (written,) = platform.requests_containing('<task id="t1">')[:1]
        (answered,) = platform.requests_containing("You write the final answer")
        schema = str(platform.model.bodies[0]["response_format"])
    assert "is_simple" in schema
    assert (written["model"], answered["model"]) == (small_or_large, small_or_large)


async def test_role_that_governance_forbids_is_not_used_for_what_is_simple_nor_by_supervisors(
    opened: Open, script: ScriptedModel
) -> None:
    table = GovernanceTable.model_validate({"modes": {"MODERATE": {"roles": ["router"]}}})
    script.run(decision(task("t1", BENCH)), t1=LOOK, qa=Answer("Fine [1]."))
    roles = TWO_MODELS | {"model_supervisor": ["scripted:planner"]}

    async with opened(roles=roles, tracing={"governance": table}) as platform:
        await platform.ask("How is it?")

        assert set(asked(platform)) == {"tiny"}
        assert "is_simple" not in str(platform.model.bodies)


async def test_nothing_is_called_simple_where_one_model_does_all(platform: Platform, script: ScriptedModel) -> None:
    script.supervisor(decision(reply="Hello."))

    await platform.ask("Hi.")

    assert "is_simple" not in str(platform.model.bodies)


async def test_supervisor_is_asked_after_each_round_of_results_where_the_caller_wants_it(
    platform: Platform, script: ScriptedModel
) -> None:
    plan = decision(task("t1", BENCH), task("t2", BENCH, after=["t1"]))
    script.run(plan, decision(), decision(is_request_satisfied=True), t1=LOOK, t2=LOOK, qa=Answer("Fine [1][2]."))

    stream = await platform.ask("How is it?", replan="always")

    decided = platform.requests_containing("You supervise agents")
    assert (stream.status, len(decided), len(stream.of("plan"))) == ("succeeded", 3, 3)
    assert '"task_id": "t1"' in decided[1]["messages"][1]["content"]
    assert len(platform.model.bodies) == 3 + 2 * 2 + 1


async def test_plan_goes_on_without_the_supervisor_once_its_calls_are_used_up(
    platform: Platform, script: ScriptedModel
) -> None:
    plan = decision(task("t1", BENCH), task("t2", BENCH, after=["t1"]))
    script.run(plan, t1=LOOK, t2=LOOK, qa=Answer("Fine [1][2]."))

    stream = await platform.ask("How is it?", replan="always", limits={"supervisor_calls": 1})

    assert (stream.status, len(platform.requests_containing("You supervise agents"))) == ("succeeded", 1)
    assert [result["status"] for result in stream.of("task_result")] == ["approved", "approved"]


async def test_supervisor_that_repeats_a_failing_agent_is_stopped_where_it_is_asked_after_each_result(
    platform: Platform, script: ScriptedModel
) -> None:
    script.supervisor(decision(task("t1", BENCH, "look")))
    script.agent("t1", LOOK)
    script.reviewer(verdict("REJECTED", "No."))

    stream = await platform.ask("How is it?", replan="always")

    assert stream.status == "failed"
    assert "circuit_breaker" in stream.codes


@pytest.mark.parametrize(("at", "decisions"), [("start", 3), ("d2", 2), ("t2", 1)])
async def test_fork_of_a_run_asks_the_supervisor_as_often_as_the_rest_of_it_did(
    platform: Platform, script: ScriptedModel, at: str, decisions: int
) -> None:
    plan = decision(task("t1", BENCH), task("t2", BENCH, after=["t1"]))
    goes_on, ends = decision(), decision(is_request_satisfied=True)
    script.run(plan, goes_on, ends, t1=LOOK, t2=LOOK, qa=Answer("Fine [1][2]."))
    original = await platform.ask("How is it?", replan="always")
    asked_before = len(platform.requests_containing("You supervise agents"))
    script.forget()
    script.run(*[plan, goes_on, ends][3 - decisions :], t1=LOOK, t2=LOOK, qa=Answer("Fine [1][2]."))

    accepted = await platform.services.forks.accept(
        platform.caller, original.key.id, ForkRequest(at=at, changes=ForkChanges())
    )
    stream = await platform.finish(RunKey(original.key.tenant, accepted.started.run_id))

    asked_now = len(platform.requests_containing("You supervise agents"))
    assert (stream.status, asked_before, asked_now - asked_before) == ("succeeded", 3, decisions)
