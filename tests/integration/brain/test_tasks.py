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


async def test_an_approved_result_goes_on_as_the_tools_gave_it(platform: Platform, script: ScriptedModel) -> None:
    script.agent("t1", LOOK)
    script.reviewer(verdict("APPROVED"))

    stream = await platform.ask("How is the disk?")

    assert stream.of("task_result")[0]["summary"] == "the disk is fine"
    (review,) = platform.requests_containing("You review the result")
    assert '<call name="bench.look" status="succeeded"><arguments>' in review["messages"][1]["content"]


async def test_a_rejected_attempt_is_made_again_with_the_reasons(platform: Platform, script: ScriptedModel) -> None:
    script.agent("t1", LOOK, calls(("look", {"thing": "other disk"})))
    script.reviewer(verdict("REJECTED", "It is the wrong disk."), verdict("APPROVED"))

    stream = await platform.ask("How is the other disk?")

    second = platform.requests_containing('<task id="t1">')[1]["messages"]
    assert "<feedback>It is the wrong disk.</feedback>" in second[-1]["content"]
    assert [message["role"] for message in second] == ["system", "user", "assistant", "tool", "user"]
    assert [event["status"] for event in stream.of("reflection")] == ["REJECTED", "APPROVED"]
    assert [event["attempt"] for event in stream.of("task_start")] == [1, 2]
    assert stream.status == "succeeded"


async def test_the_last_attempt_ends_in_an_explicit_failure(opened: Open, script: ScriptedModel) -> None:
    script.agent("t1", LOOK)
    script.reviewer(verdict("REJECTED", "It is the wrong disk."))

    async with opened(max_attempts=3, supervisor_calls=1) as platform:
        stream = await platform.ask("How is the other disk?")

    (result,) = stream.of("task_result")
    assert (result["status"], result["attempt"], result["summary"]) == ("failed", 3, "It is the wrong disk.")
    assert stream.status == "failed"


async def test_a_fix_counts_once_it_is_approved_itself(platform: Platform, script: ScriptedModel) -> None:
    script.agent("t1", LOOK)
    script.reviewer(verdict("FIXED", "Shorter.", refined="fine"), verdict("APPROVED"))

    stream = await platform.ask("How is the disk?")

    assert stream.of("task_result")[0]["summary"] == "fine"
    assert [event["status"] for event in stream.of("reflection")] == ["FIXED"]
    assert "<output>fine</output>" in platform.requests_containing("You review the result")[1]["messages"][1]["content"]


@pytest.mark.parametrize("second", ["REJECTED", "FIXED"])
async def test_a_fix_that_is_not_approved_is_a_rejection(opened: Open, script: ScriptedModel, second: str) -> None:
    script.agent("t1", LOOK)
    script.reviewer(verdict("FIXED", refined="broken"), verdict(second, "Worse.", refined="again"))

    async with opened(max_attempts=1, supervisor_calls=1) as platform:
        stream = await platform.ask("How is the disk?")

    assert [event["status"] for event in stream.of("reflection")] == ["REJECTED"]
    assert stream.of("task_result")[0]["status"] == stream.status == "failed"


async def test_a_fix_that_is_missing_is_a_rejection(opened: Open, script: ScriptedModel) -> None:
    script.agent("t1", LOOK)
    script.reviewer(verdict("FIXED"))

    async with opened(max_attempts=1, supervisor_calls=1) as platform:
        stream = await platform.ask("How is the disk?")

    assert stream.of("task_result")[0]["summary"] == "The output was called fixed, but no fix was given."


async def test_a_garbled_verdict_is_asked_for_once_more(platform: Platform, script: ScriptedModel) -> None:
    script.agent("t1", LOOK)
    script.reviewer(GARBAGE, verdict("APPROVED"))

    stream = await platform.ask("How is the disk?")

    assert (stream.status, stream.codes) == ("succeeded", ["llm_invalid_response"])


@pytest.mark.parametrize(
    "answer",
    [GARBAGE, verdict("PROBABLY"), Answer(""), Answer(status=401, body="{}"), Answer('{"status": "APPROVED"}')],
    ids=["words", "status", "nothing", "refused", "half"],
)
async def test_without_a_verdict_there_is_no_success(opened: Open, script: ScriptedModel, answer: Answer) -> None:
    script.agent("t1", LOOK)
    script.reviewer(answer)

    async with opened(supervisor_calls=1) as platform:
        stream = await platform.ask("How is the disk?")

    assert stream.of("task_result")[0]["status"] == stream.status == "failed"


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (calls(("fail", {"why": "on fire"})), "on fire"),
        (calls(("fly", {})), "There is no tool 'fly'."),
        (calls(("look", {"thing": 5})), "The arguments don't fit bench.look"),
        (calls(("look", '{"thing": "di')), "The arguments weren't a JSON object."),
        (calls(("silence", {})), "The output is empty."),
        (calls(("silence", {}), ("silence", {})), "The output is empty."),
    ],
    ids=["failing", "unknown", "schema", "cut", "silent", "all-silent"],
)
async def test_what_is_certainly_wrong_is_rejected_without_a_model(
    platform: Platform, script: ScriptedModel, asked: Answer, reason: str
) -> None:
    script.agent("t1", asked, LOOK)
    script.reviewer(verdict("APPROVED"))

    stream = await platform.ask("How is the disk?")

    first = stream.of("reflection")[0]
    assert first["status"] == "REJECTED"
    assert reason in first["reasons"][0]
    assert len(platform.requests_containing("You review the result")) == 1
    assert stream.status == "succeeded"


async def test_a_failed_call_is_an_observation_for_the_next_turn(platform: Platform, script: ScriptedModel) -> None:
    script.agent("t1", calls(("fly", {}), ("continue", {})), LOOK)
    script.reviewer(verdict("APPROVED"))

    stream = await platform.ask("How is the disk?")

    second = platform.requests_containing('<task id="t1">')[1]["messages"]
    assert [message["content"] for message in second[-2:]] == ["There is no tool 'fly'.", "Go on."]
    assert [event["status"] for event in stream.of("tool_result")] == ["failed", "succeeded"]
    assert [event["attempt"] for event in stream.of("task_start")] == [1]


async def test_calls_of_one_answer_are_made_side_by_side(platform: Platform, script: ScriptedModel) -> None:
    script.agent("t1", calls(*[("meet", {"place": "calls", "others": 3})] * 3))
    script.reviewer(verdict("APPROVED"))

    stream = await platform.ask("Meet.")

    assert stream.of("task_result")[0]["status"] == "approved"
    kinds = [kind for kind in stream.kinds if kind.startswith("tool")]
    assert kinds == ["tool_start"] * 3 + ["tool_result"] * 3


async def test_each_call_gets_its_own_result_even_with_one_id_for_all(
    platform: Platform, script: ScriptedModel
) -> None:
    asked = [{"id": "same", "name": "look", "arguments": {"thing": thing}} for thing in ("disk", "door")]
    script.agent("t1", Answer(tool_calls=[*asked, {"id": "same", "name": "continue", "arguments": {}}]), LOOK)
    script.reviewer(verdict("APPROVED"))

    await platform.ask("How are disk and door?")

    second = platform.requests_containing('<task id="t1">')[1]["messages"]
    assert [m["content"] for m in second[-3:]] == ["the disk is fine", "the door is fine", "Go on."]


async def test_continue_alone_is_answered_before_anything_else_is_said(
    platform: Platform, script: ScriptedModel
) -> None:
    wondering = Answer(tool_calls=[{"name": "continue", "arguments": {}}])
    script.agent("t1", calls(("look", {"thing": "disk"}), ("continue", {})), wondering, LOOK)
    script.reviewer(verdict("REJECTED", "Look again."), verdict("APPROVED"))

    await platform.ask("How is the disk?")

    third = platform.requests_containing('<task id="t1">')[2]["messages"]
    assert [message["role"] for message in third[-3:]] == ["assistant", "tool", "user"]


async def test_turns_end_at_the_limit_of_iterations(
    platform: Platform, script: ScriptedModel, workbench: Workbench
) -> None:
    script.agent("t1", calls(("look", {"thing": "disk"}), ("continue", {})))
    script.reviewer(verdict("APPROVED"))

    await platform.ask("Look for ever.", limits={"tool_iterations": 2})

    assert workbench.done() == ["look disk"] * 2
    assert len(platform.requests_containing("You review the result")) == 1


async def test_an_agent_that_says_it_cannot_is_believed(platform: Platform, script: ScriptedModel) -> None:
    script.agent("t1", Answer("No tool tells the weather."))

    stream = await platform.ask("How is the weather?", limits={"supervisor_calls": 1})

    assert stream.of("task_result")[0]["summary"] == "No tool tells the weather."
    assert platform.requests_containing("You review the result") == []
    assert stream.status == "failed"


async def test_an_agent_that_says_nothing_fails(platform: Platform, script: ScriptedModel) -> None:
    script.agent("t1", Answer(""))

    stream = await platform.ask("How is the disk?", limits={"supervisor_calls": 1})

    assert (stream.status, stream.codes[0]) == ("failed", "llm_invalid_response")


async def test_a_cautious_run_sees_only_tools_that_read(platform: Platform, script: ScriptedModel) -> None:
    script.agent("t1", LOOK)
    script.reviewer(verdict("APPROVED"))

    await platform.ask("How is the disk?", mode="CONSERVATIVE")

    planner = platform.requests_containing("You are the supervisor")[0]["messages"][1]["content"]
    assert f'<agent name="{BENCH}"' in planner
    assert SHOP not in planner


async def test_a_server_that_is_away_degrades_its_specialist_and_nothing_else(
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

    planner = platform.requests_containing("You are the supervisor")[0]["messages"][1]["content"]
    assert '<agent name="mcp_agent_gone" kind="specialist" state="degraded">' in planner
    assert [part.part for part in result.degraded] == ["look away"]
    assert stream.status == "succeeded"
