"""The final answer: streamed, with its sources, and there even if no model can put it into words."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tests.integration.brain.conftest import Open
from tests.support.interrupted_runs import wait_for_event
from tests.support.model_script import Answer, Rule, When
from tests.support.platform import BENCH, Platform, RunStream, ScriptedModel, calls, decision, task, verdict

pytestmark = pytest.mark.asyncio(loop_scope="module")

LOOK = calls(("look", {"thing": "disk"}))


def typed(stream: RunStream) -> str:
    """What a reader sees at the end, who lets each new message take the place of the one before."""
    parts = stream.of("thinking")
    return "".join(part["content"] for part in parts if part["message_id"] == parts[-1]["message_id"])


def plan_one_look(script: ScriptedModel) -> None:
    script.run(decision(task("t1", BENCH)), t1=LOOK)


async def test_qa_answer_is_streamed_while_the_model_writes(platform: Platform, script: ScriptedModel) -> None:
    plan_one_look(script)
    script.qa(Answer("The disk is fine [1].", hold="rest", hold_after=2))
    key = await platform.accept("How is the disk?")

    async with platform.executing(key) as life:
        await wait_for_event(platform, key, "thinking")
        platform.model.release("rest")
        await life

    stream = await platform.stream(key)
    assert [part["content"] for part in stream.of("thinking")] == ["The disk ", "is fine [1]."]
    assert typed(stream) == stream.reply == "The disk is fine [1]."


async def test_plain_answer_replaces_text_streamed_before_the_timeout(opened: Open, script: ScriptedModel) -> None:
    plan_one_look(script)
    script.qa(Answer("The disk is on fire", hold="for ever", hold_after=3))

    async with opened(model_call_seconds=2) as platform:
        stream = await platform.ask("How is the disk?")

    assert stream.codes == ["llm_timeout"]
    assert typed(stream) == stream.reply == "the disk is fine [1]"


async def test_broken_stream_restarts_as_a_new_message(platform: Platform, script: ScriptedModel) -> None:
    plan_one_look(script)
    script.qa(Answer("The disk is on fire", cut_after=2), Answer("The disk is fine [1]."))

    stream = await platform.ask("How is the disk?")

    assert (stream.status, stream.codes) == ("succeeded", ["model"])
    assert stream.of("thinking")[-1]["message_id"].endswith(".1")
    assert typed(stream) == stream.reply == "The disk is fine [1]."


async def test_single_text_task_streams_and_skips_qa(platform: Platform, script: ScriptedModel) -> None:
    script.run(decision(task("t1", "coder", "write it")), t1=Answer("print(1)", hold="rest", hold_after=1))
    key = await platform.accept("Write it.")

    async with platform.executing(key) as life:
        await wait_for_event(platform, key, "thinking")
        platform.model.release("rest")
        await life

    stream = await platform.stream(key)
    assert typed(stream) == stream.reply == "print(1)"
    assert platform.requests_containing("You write the final answer") == []


async def test_done_event_names_the_sources_of_the_answer(platform: Platform, script: ScriptedModel) -> None:
    flight = {"part": "book a flight", "reason": "no agent books flights"}
    script.supervisor(decision(task("t1", BENCH), assumptions=["the first disk"], unserved=[flight]))
    script.agent("t1", LOOK)
    script.reviewer(verdict("APPROVED"))
    script.qa(Answer("Fine [1] [2]."))

    stream = await platform.ask("How is the disk? Book a flight.")

    result = (await platform.result(stream.key)).model_dump()
    assert stream.reply == typed(stream) == "Fine [1].\n\nNot answered: book a flight (no agent books flights)"
    [call] = stream.of("tool_result")
    excerpt = {"text": "the disk is fine", "start": 0, "end": 16, "call_id": call["call_id"]}
    made: Any = {"calls": [{"call_id": call["call_id"], "tool": "bench.look"}], "excerpts": [excerpt]}
    assert stream.done["citations"] == [{"id": 1, "task_id": "t1", "agent": BENCH, "tools": ["bench.look"], **made}]
    assert (stream.done["assumptions"], stream.done["degraded"]) == (["the first disk"], [flight])
    assert (stream.status, stream.done["code"], stream.codes) == ("succeeded", None, ["citation_without_source"])
    assert stream.done == {"type": "done"} | {name: value for name, value in result.items() if name != "plan"}


async def test_rate_limit_is_a_warning_while_it_lasts_and_its_attempt_a_model_call(
    platform: Platform, script: ScriptedModel
) -> None:
    limited = Answer(status=429, headers={"Retry-After": "0.01"}, body="{}")
    script.rules.append(Rule(limited, When(schema="supervisor_decision", nth=1)))
    script.supervisor(replace(decision(reply="Hello."), hold="rest"))
    key = await platform.accept("Hi.")

    async with platform.executing(key) as life:
        await wait_for_event(platform, key, "warning")
        platform.model.release("rest")
        await life

    stream = await platform.stream(key)
    assert stream.reply == "Hello."
    assert [data["message"] for data in stream.of("warning")] == [
        "Model scripted:small is rate limited, again in 0.01 s."
    ]
    assert stream.done["usage"]["model_calls"] == 2


async def test_concurrent_runs_get_their_own_answers(platform: Platform, script: ScriptedModel) -> None:
    for number in range(6):
        script.supervisor(decision(task(f"t{number}", "generalist")))
        script.agent(f"t{number}", Answer(f"Answer t{number}."))
    script.reviewer(verdict("APPROVED"))

    keys = [await platform.accept(f"Question {number}.", thread=f"thread {number}") for number in range(4)]
    stream = await asyncio.gather(*map(platform.finish, keys))

    assert [one.status for one in stream] == ["succeeded"] * 4
    assert all(one.of("task_result")[0]["summary"] == one.reply for one in stream)
