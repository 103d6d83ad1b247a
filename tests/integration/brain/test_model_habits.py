"""Whole runs with models that reason aloud, wrap their JSON in prose, leave members out and write calls as text."""

import json
from dataclasses import replace

from tests.integration.brain.conftest import Open
from tests.integration.brain.test_final_answer import typed
from tests.support.model_script import Answer
from tests.support.platform import BENCH, Platform, ScriptedModel, Workbench, calls

LOOK = '{"name": "bench.look", "arguments": {"thing": "disk"}}'
THOUGHT = "SECRET thoughts about the disk"
DECISION = json.dumps({"selected_agents": [{"task_id": "t1", "agent": "bench", "task": "look at the disk"}]})


def habits(script: ScriptedModel) -> None:
    """One request, answered as small reasoning models do."""
    script.supervisor(Answer(f"<think>\n{THOUGHT}: {{bench}}\n</think>\n\nSure!\n```json\n{DECISION}\n```"))
    script.agent("t1", Answer(f"<think>{THOUGHT}</think>\n<tool_call>\n{LOOK}\n</tool_call>"))
    script.reviewer(Answer("{'status': 'APPROVED',}"))
    script.qa(Answer(f"{THOUGHT}.\n</think>\n\nThe disk is fine [1].", reasoning=THOUGHT))


async def test_run_of_a_model_with_habits_succeeds_and_shows_no_reasoning(
    opened: Open, script: ScriptedModel, workbench: Workbench
) -> None:
    habits(script)

    async with opened(models=("scripted:deepseek-r1",)) as platform:
        stream = await platform.ask("How is the disk?")

    assert (stream.status, stream.reply, stream.codes) == ("succeeded", "The disk is fine [1].", [])
    assert workbench.done() == ["look disk"]
    assert typed(stream) == stream.reply
    assert [event["agent"] for event in stream.of("task_start")] == [BENCH]
    assert THOUGHT not in json.dumps([event.data for event in stream.events])
    assert len(platform.model.bodies) == 4  # nothing had to be asked again
    assert THOUGHT not in json.dumps(platform.model.bodies)


async def test_reasoning_is_sent_back_within_the_tool_loop_only(platform: Platform, script: ScriptedModel) -> None:
    script.supervisor(Answer(DECISION))
    script.agent(
        "t1",
        replace(calls(("look", {"thing": "disk"}), ("continue", {})), reasoning=THOUGHT),
        calls(("look", {"thing": "door"})),
    )
    script.reviewer(Answer('{"status": "APPROVED"}'))
    script.qa(Answer("Both are fine [1]."))

    stream = await platform.ask("How are disk and door?")

    sent = [message for body in platform.model.bodies for message in body["messages"] if THOUGHT in json.dumps(message)]
    assert stream.status == "succeeded"
    assert [(message["role"], message["reasoning_content"]) for message in sent] == [("assistant", THOUGHT)]


async def test_refused_output_is_shown_with_what_was_expected(platform: Platform, script: ScriptedModel) -> None:
    script.supervisor(Answer("I would first look at the disk, and then decide."), Answer('{"reply": "Hello!"}'))

    stream = await platform.ask("Hi.")

    [warning] = stream.of("warning")
    assert (stream.reply, warning["code"]) == ("Hello!", "llm_invalid_response")
    assert "It wrote: I would first look at the disk, and then decide." in warning["message"]
    assert 'Expected: one JSON object with "plan", "selected_agents"' in warning["message"]


async def test_unknown_tool_is_answered_with_near_names(
    platform: Platform, script: ScriptedModel, workbench: Workbench
) -> None:
    script.supervisor(Answer(DECISION))
    script.agent(
        "t1",
        calls(("lok", {}), ("continue", {})),
        calls(("Bench_Look", {"thing": "disk"})),
    )
    script.reviewer(Answer('{"status": "APPROVED"}'))
    script.qa(Answer("The disk is fine [1]."))

    stream = await platform.ask("How is the disk?")

    assert stream.of("tool_result")[0]["result"] == "There is no tool 'lok'. Did you mean look?"
    assert workbench.done() == ["look disk"]
