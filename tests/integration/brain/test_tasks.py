"""What a task goes through: executed, judged, sent back or recorded; a failure is never a success."""

import pytest

from tests.integration.brain.conftest import Open
from tests.support.model_script import Answer
from tests.support.platform import BENCH, SHOP, Platform, ScriptedModel, Workbench, calls, decision, task, verdict

LOOK = calls(("look", {"thing": "disk"}))
GARBAGE = Answer("looks good to me")


@pytest.fixture(autouse=True)
def one_task(script: ScriptedModel) -> None:
    """The plan of most tests here: one task, then what QA makes of it."""
    script.supervisor(decision(task("t1", BENCH), plan=["look"]))
    script.qa(Answer("That is the answer."))


async def test_approved_result_is_the_tool_output_unchanged(platform: Platform, script: ScriptedModel) -> None:
    script.agent("t1", LOOK)
    script.reviewer(verdict("APPROVED"))

    stream = await platform.ask("How is the disk?")

    assert stream.of("task_result")[0]["summary"] == "the disk is fine"
    (review,) = platform.requests_containing("You review the result")
    assert '<call name="bench.look" status="succeeded"><arguments>' in review["messages"][1]["content"]


async def test_arguments_that_do_not_fit_the_schema_are_rejected_without_a_model(
    platform: Platform, script: ScriptedModel
) -> None:
    script.agent("t1", calls(("look", {"thing": 5})), LOOK)
    script.reviewer(verdict("APPROVED"))

    stream = await platform.ask("How is the disk?")

    first = stream.of("reflection")[0]
    assert first["status"] == "REJECTED"
    assert "The arguments don't fit bench.look" in first["reasons"][0]
    assert len(platform.requests_containing("You review the result")) == 1
    assert stream.status == "succeeded"


async def test_calls_of_one_answer_run_concurrently(platform: Platform, script: ScriptedModel) -> None:
    script.agent("t1", calls(*[("meet", {"place": "calls", "others": 3})] * 3))
    script.reviewer(verdict("APPROVED"))

    stream = await platform.ask("Meet.")

    assert stream.of("task_result")[0]["status"] == "approved"
    kinds = [kind for kind in stream.kinds if kind.startswith("tool")]
    assert kinds == ["tool_start"] * 3 + ["tool_result"] * 3


async def test_conservative_run_sees_read_tools_only(platform: Platform, script: ScriptedModel) -> None:
    script.agent("t1", LOOK)
    script.reviewer(verdict("APPROVED"))

    await platform.ask("How is the disk?", mode="CONSERVATIVE")

    planner = platform.requests_containing("You supervise agents")[0]["messages"][1]["content"]
    assert f'<agent name="{BENCH}"' in planner
    assert SHOP not in planner


async def test_unreachable_server_degrades_its_specialist_only(
    opened: Open, script: ScriptedModel, workbench: Workbench
) -> None:
    script.rules.clear()
    script.supervisor(decision(task("t1", "mcp_agent_gone", "look away"), task("t2", BENCH)))
    script.agent("t2", LOOK)
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("Fine [1], but one server is away."))
    gone = {"url": "http://127.0.0.1:9/mcp"}

    async with opened(servers={"bench": workbench.as_server("read"), "gone": gone}) as platform:
        stream = await platform.ask("Look at both.")
        result = await platform.result(stream.key)

    planner = platform.requests_containing("You supervise agents")[0]["messages"][1]["content"]
    assert '<agent name="mcp_agent_gone" kind="specialist" state="degraded">' in planner
    assert [part.part for part in result.degraded] == ["look away"]
    assert stream.status == "succeeded"
