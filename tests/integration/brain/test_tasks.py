"""What a task goes through: executed, judged, sent back or recorded; a failure is never a success."""

import pytest

from tests.support.model_script import Answer
from tests.support.platform import BENCH, SHOP, Platform, ScriptedModel, calls, decision, task, verdict

LOOK = calls(("look", {"thing": "disk"}))


@pytest.fixture(autouse=True)
def one_task(script: ScriptedModel) -> None:
    """The plan of most tests here: one task, then what QA makes of it."""
    script.supervisor(decision(task("t1", BENCH), plan=["look"]))
    script.qa(Answer("That is the answer."))


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
