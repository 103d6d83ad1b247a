"""Whole runs with models that reason aloud: what they are sent back."""

import json
from dataclasses import replace

from tests.support.model_script import Answer
from tests.support.platform import Platform, ScriptedModel, calls

THOUGHT = "SECRET thoughts about the disk"
DECISION = json.dumps({"selected_agents": [{"task_id": "t1", "agent": "bench", "task": "look at the disk"}]})


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
