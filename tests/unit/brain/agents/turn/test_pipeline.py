"""The pipeline of a task: attempts, reviews, the cap on attempts, failures as outcomes, and resumed tasks."""

from dataclasses import replace
from typing import Any

import pytest

from brain.agents.turn.pipeline import Pipeline
from brain.registry.cards import AgentCard
from brain.state import TaskDispatch, TaskOutcome
from starling.core.errors import LLMServerError
from starling.core.llm import ModelReply, ModelToolCall, ReturnedReasoning
from starling.core.settings.schema import Limits
from starling.core.tool_calls import Observation
from starling.core.tools import ToolCall, ToolOutcome
from tests.support import runtime_harness
from tests.support.in_memory_run import MODEL, Execution, ScriptedAnswer, make_execution, make_run, tool_calls
from tests.support.model_documents import verdict_json
from tests.support.runtime_harness import pipeline_of, tool_access
from tests.support.scripted_gateway import ScriptedGateway, tool

BENCH = AgentCard("bench", "specialist", "Looks.", server="bench", tools=(tool("look"), tool("fail")))
LOOK = tool_calls(("look", {"thing": "disk"}))
APPROVED = verdict_json("APPROVED")
REJECTED = verdict_json("REJECTED", "It is the wrong disk.")
GARBAGE = "looks good to me"


def answer(call: ToolCall) -> ToolOutcome:
    match call.tool.name:
        case "fail":
            return ToolOutcome(Observation.TOOL_ERROR, "on fire", code="tool_error")
        case _ if call.arguments.get("thing") == "silence":
            return ToolOutcome(Observation.COMPLETED, "")
        case _:
            return ToolOutcome(Observation.COMPLETED, f"the {call.arguments['thing']} is fine")


def pipeline(gateway: ScriptedGateway | None = None, **limits: Any) -> Pipeline:
    return pipeline_of(tool_access(gateway or ScriptedGateway(answer), Limits(**limits)))


def dispatch(agent: str = "bench", *, whole_plan: bool = True, **fields: Any) -> TaskDispatch:
    return runtime_harness.dispatch("look at the disk", agent, whole_plan=whole_plan, **fields)


def execution(*answers: ScriptedAnswer, **fields: Any) -> Execution:
    return make_execution(*answers, agents=[BENCH], **fields)


async def run(begun: Execution, sent: TaskDispatch | None = None) -> TaskOutcome:
    return await pipeline().run(begun.context, sent or dispatch())


async def test_approved_result_is_the_output_as_the_tool_gave_it() -> None:
    begun = execution(LOOK, APPROVED)

    outcome = await run(begun)

    assert (outcome["status"], outcome["output"], outcome["attempts"]) == ("approved", "the disk is fine", 1)
    assert outcome["tools"] == [{"tool": "bench.look", "status": "succeeded"}]
    assert begun.kinds == ["task_start", "tool_start", "tool_result", "reflection", "task_result"]


async def test_rejection_of_the_last_attempt_is_a_failure_with_its_reason() -> None:
    begun = execution(*[LOOK, REJECTED] * 3, limits=Limits(max_attempts=3))

    outcome = await run(begun)

    assert (outcome["status"], outcome["attempts"], outcome["output"]) == ("failed", 3, "")
    assert outcome["reason"] == "It is the wrong disk."


@pytest.mark.parametrize("second", ["REJECTED", "FIXED"])
async def test_fixed_output_that_is_not_approved_is_a_rejection(second: str) -> None:
    worse = verdict_json(second, "Worse.", refined="again")
    begun = execution(LOOK, verdict_json("FIXED", refined="broken"), worse, limits=Limits(max_attempts=1))

    outcome = await run(begun)

    assert (outcome["status"], outcome["reason"]) == ("failed", "Worse.")
    assert [event["status"] for event in begun.events("reflection")] == ["REJECTED"]


async def test_fixed_verdict_without_a_fix_is_a_rejection() -> None:
    begun = execution(LOOK, verdict_json("FIXED"), limits=Limits(max_attempts=1))

    outcome = await run(begun)

    assert outcome["reason"] == "The output was called fixed, but no fix was given."


async def test_invalid_verdict_is_repaired_once() -> None:
    begun = execution(LOOK, GARBAGE, APPROVED)

    outcome = await run(begun)

    assert (outcome["status"], begun.warnings) == ("approved", ["llm_invalid_response"])


async def test_reasoning_goes_back_with_the_calls_that_it_led_to_also_after_a_restart() -> None:
    calls = tool_calls(("look", {"thing": "disk"}), ("continue", {})).tool_calls
    thought = ModelReply("", calls, reasoning="I look first.", reasoning_field="reasoning_content")
    begun = execution(thought, LOOK, APPROVED)

    await run(begun)
    begun.sink.entries[:] = [entry for entry in begun.sink.entries if (entry.path, entry.kind) != ("t1", "result")]
    resumed = execution(after=begun)

    assert (await run(resumed))["status"] == "approved"

    expected = ReturnedReasoning("I look first.", "reasoning_content", MODEL)
    assert [message.reasoning for message in begun.model.requests[1].messages if message.tool_calls] == [expected]
    assert resumed.model.requests == []


async def test_verdict_that_is_only_a_status_counts() -> None:
    begun = execution(LOOK, 'Sure! The result is fine.\n```json\n{"status": "approved"}\n```')

    outcome = await run(begun)

    assert (outcome["status"], begun.warnings) == ("approved", [])


@pytest.mark.parametrize(
    "wrong",
    [GARBAGE, verdict_json("PROBABLY"), "", LLMServerError("scripted:small", "refused"), '{"reasons": []}'],
    ids=["words", "status", "nothing", "refused", "no status"],
)
async def test_result_without_a_verdict_is_a_failure(wrong: ScriptedAnswer) -> None:
    outcome = await run(execution(LOOK, wrong, wrong))

    assert (outcome["status"], outcome["output"]) == ("failed", "")


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (tool_calls(("fail", {})), "on fire"),
        (tool_calls(("fly", {})), "There is no tool 'fly'."),
        (
            ModelReply("", tool_calls=(ModelToolCall("call", "look", None, '{"thing": "di'),)),
            "The arguments weren't a JSON object.",
        ),
        (
            ModelReply("", tool_calls=(ModelToolCall("call", "look", None, '{"thing":' * 101 + "1" + "}" * 101),)),
            "The arguments are nested more than 100 levels deep.",
        ),
    ],
    ids=["failing", "unknown", "cut", "nested"],
)
async def test_failed_result_is_rejected_without_a_model(asked: ScriptedAnswer, reason: str) -> None:
    begun = execution(asked, LOOK, APPROVED)

    outcome = await run(begun)

    rejected, approved = begun.events("reflection")
    assert (rejected["status"], approved["status"]) == ("REJECTED", "APPROVED")
    assert reason in rejected["reasons"][0]
    assert (outcome["status"], len(begun.model.requests)) == ("approved", 3)


@pytest.mark.parametrize("count", [1, 2])
async def test_empty_result_of_a_call_that_succeeded_is_reviewed(count: int) -> None:
    begun = execution(tool_calls(*[("look", {"thing": "silence"})] * count), APPROVED)

    outcome = await run(begun)

    assert (outcome["status"], outcome["attempts"], len(begun.model.requests)) == ("approved", 1, 2)


@pytest.mark.parametrize(
    ("asked", "reason", "code"),
    [
        (tool_calls(("get_weather", {})), "get_weather failed: There is no tool 'get_weather'.", "not_allowed"),
        (tool_calls(("fail", {})), "bench.fail failed: on fire", "tool_error"),
    ],
    ids=["unknown", "failing"],
)
async def test_failed_call_is_the_reason_rather_than_what_the_agent_writes(
    asked: ScriptedAnswer, reason: str, code: str
) -> None:
    begun = execution(asked, "It is noon in Lima.")

    outcome = await run(begun)

    assert (outcome["reason"], outcome.get("code")) == (reason, code)
    assert len(outcome["tools"]) == len(begun.events("tool_start"))


async def test_rejection_names_the_call_that_failed_too() -> None:
    begun = execution(tool_calls(("fail", {}), ("look", {"thing": "disk"})), REJECTED, limits=Limits(max_attempts=1))

    outcome = await run(begun)

    assert outcome["reason"] == "It is the wrong disk. bench.fail failed: on fire"


async def test_call_that_succeeded_later_is_no_reason() -> None:
    again = tool_calls(("look", {"thing": "silence"}))
    begun = execution(again, REJECTED, LOOK, REJECTED, limits=Limits(max_attempts=2))

    outcome = await run(begun)

    assert (outcome["reason"], outcome.get("code")) == ("It is the wrong disk.", "rejected")


async def test_continue_gives_another_turn_without_a_review() -> None:
    begun = execution(tool_calls(("fly", {}), ("continue", {})), LOOK, APPROVED)

    outcome = await run(begun)

    second = begun.model.requests[1].messages
    assert [message.content for message in second[-2:]] == ["There is no tool 'fly'.", "Go on."]
    assert (outcome["status"], outcome["attempts"]) == ("approved", 1)


async def test_each_call_gets_its_own_result_even_with_one_id_for_all() -> None:
    asked = [ModelToolCall("same", "look", {"thing": thing}) for thing in ("disk", "door")]
    both = ModelReply("", tool_calls=(*asked, ModelToolCall("same", "continue", {})))
    begun = execution(both, LOOK, APPROVED)

    await run(begun)

    second = begun.model.requests[1].messages
    assert [message.content for message in second[-3:]] == ["the disk is fine", "the door is fine", "Go on."]


async def test_continue_alone_is_answered_before_the_feedback() -> None:
    alone = tool_calls(("continue", {}))
    begun = execution(tool_calls(("look", {"thing": "disk"}), ("continue", {})), alone, REJECTED, LOOK, APPROVED)

    await run(begun)

    third = begun.model.requests[3].messages
    assert [message.role for message in third[-3:]] == ["assistant", "tool", "user"]


async def test_turns_end_at_the_limit_of_iterations() -> None:
    gateway = ScriptedGateway(answer)
    on = tool_calls(("look", {"thing": "disk"}), ("continue", {}))
    begun = execution(on, on, APPROVED, run=make_run(tool_iterations=2))

    await pipeline(gateway).run(begun.context, dispatch())

    assert [call.arguments for call in gateway.calls] == [{"thing": "disk"}] * 2


@pytest.mark.parametrize(
    ("agent", "reason"),
    [("nobody", "There is no agent 'nobody'."), ("away", "The server is away.")],
    ids=["unknown", "degraded"],
)
async def test_task_of_an_agent_that_can_not_work_fails_without_a_model(agent: str, reason: str) -> None:
    away = replace(BENCH, name="away", degraded="The server is away.")
    begun = make_execution(agents=[away])

    outcome = await run(begun, dispatch(agent))

    assert (outcome["status"], outcome["reason"], outcome["attempts"]) == ("failed", reason, 0)
    assert begun.model.requests == []


async def test_finished_task_is_returned_from_the_journal() -> None:
    first = execution(LOOK, APPROVED)
    before = await run(first)
    second = execution(after=first)

    outcome = await run(second)

    assert outcome == before
    assert (second.kinds, second.model.requests) == ([], [])


async def test_interrupted_task_is_continued_from_the_journal() -> None:
    first = execution(LOOK, REJECTED, LLMServerError("scripted:small", "stopped here"))
    await run(first)
    first.sink.entries[:] = [entry for entry in first.sink.entries if (entry.path, entry.kind) != ("t1", "result")]
    second = execution(tool_calls(("look", {"thing": "other disk"})), APPROVED, after=first)

    outcome = await run(second)

    assert (outcome["output"], len(second.model.requests)) == ("the other disk is fine", 2)
    assert second.kinds == ["tool_start", "tool_result", "reflection", "task_result"]


async def test_begun_task_of_an_agent_that_degraded_since_is_continued() -> None:
    first = execution(LLMServerError("scripted:small", "stopped here"))
    await run(first)
    first.sink.entries[:] = [entry for entry in first.sink.entries if entry.kind == "context"]
    away = replace(BENCH, degraded="The server is away.")
    second = make_execution(LOOK, APPROVED, agents=[away], after=first)

    outcome = await run(second)

    assert outcome["status"] == "approved"


async def test_prompt_carries_the_results_that_the_task_depends_on() -> None:
    begun = execution("Good news.", APPROVED)
    needed = TaskOutcome(
        task_id="t0", agent="bench", status="approved", output="the door is fine", reason="", attempts=1, tools=[]
    )

    await run(begun, dispatch("generalist", needed=[needed]))

    assert "the door is fine" in begun.model.prompts[0]


async def test_text_that_the_review_fixed_replaces_the_streamed_one() -> None:
    begun = execution("A bda text.", verdict_json("FIXED", "A letter.", refined="A bad text."), APPROVED)

    await run(begun, dispatch("generalist"))

    assert begun.text == "A bad text."


async def test_text_of_one_task_among_several_is_not_streamed() -> None:
    begun = execution("One.", APPROVED)

    await run(begun, dispatch("generalist", whole_plan=False))

    assert begun.events("thinking") == []
