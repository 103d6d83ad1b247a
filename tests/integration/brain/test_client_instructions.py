"""What a client says of the conversation is data for supervisor and QA."""

from starling.app.runs.acceptance import RunRequest
from starling.core.runs import RunConfig
from tests.support.model_script import Answer
from tests.support.platform import BENCH, Platform, ScriptedModel, calls, decision, task

TEXT = "Answer <b>in rhymes</b>."
ELEMENT = "<client_instructions>Answer &lt;b&gt;in rhymes&lt;/b&gt;.</client_instructions>"


def script_run(script: ScriptedModel) -> None:
    script.run(decision(task("t1", BENCH)), t1=calls(("look", {"thing": "a"})), qa=Answer("Seen [1]."))


async def test_instructions_are_data_of_supervisor_and_qa_alone(platform: Platform, script: ScriptedModel) -> None:
    script_run(script)

    await platform.ask("Look.", instructions=TEXT)

    shown = [body["messages"] for body in platform.model.bodies if ELEMENT in body["messages"][1]["content"]]
    systems = [messages[0]["content"] for messages in shown]
    assert "You supervise agents" in systems[0]
    assert "You write the final answer" in systems[-1]
    assert all("You supervise agents" in text or "You write the final answer" in text for text in systems)
    assert not any("rhymes" in body["messages"][0]["content"] for body in platform.model.bodies)


async def test_prompt_without_instructions_is_as_before(platform: Platform, script: ScriptedModel) -> None:
    script_run(script)

    key = await platform.accept("Look.")
    await platform.finish(key)

    assert not any("client_instructions" in str(body) for body in platform.model.bodies)
    assert "instructions" not in (await platform.services.runs.documents.row(key)).config


def test_digest_of_a_request_without_instructions_is_unchanged() -> None:
    request = RunRequest("hello", "t")

    assert "instructions" not in request.config.model_dump(mode="json")
    assert RunConfig(instructions=TEXT).model_dump(mode="json")["instructions"] == TEXT
