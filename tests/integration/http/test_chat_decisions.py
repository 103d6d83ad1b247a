"""What runs wait for, in conversations: questions, approvals and budgets are answered by messages."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from tests.support.chat_platform import (
    ChatDialogue,
    ChatPlatform,
    chat_platform,
    extension_of,
    platform_client,
    text_of,
)
from tests.support.effect_recorder import AGENT
from tests.support.model_script import Answer
from tests.support.platform import calls, decision, task

QUESTION = decision(question="Which disk?", options=["the first", "the second"])


@pytest.fixture
async def platform(database_url: str, tmp_path: Path) -> AsyncGenerator[ChatPlatform]:
    async with chat_platform(database_url, tmp_path) as platform:
        yield platform


def charging(platform: ChatPlatform) -> None:
    """Have each run charge something, which needs an approval."""
    platform.script.run(decision(task("t1", AGENT)), t1=calls(("charge", {"what": "a"})), qa=Answer("Charged [1]."))


def code_in(text: str) -> str:
    [code] = codes_in(text)
    return code


def codes_in(text: str) -> list[str]:
    return re.findall(r"`approve ([0-9A-F]+)", text)


async def test_edited_answer_to_a_question_is_a_branch_that_begins_after_the_question(platform: ChatPlatform) -> None:
    platform.script.supervisor(QUESTION, decision(reply="Fine."), decision(reply="Not so fine."))
    async with platform_client(platform) as client:
        dialogue = ChatDialogue(client)
        asked = await dialogue.say("Is the disk fine?")
        await dialogue.say("the first")

        edited = await ChatDialogue(client, dialogue.messages[:2]).say("the second")

    assert text_of(edited) == "Not so fine."
    thread = extension_of(asked)["thread_id"]
    assert extension_of(edited)["thread_id"] == thread
    main, fork = (await platform.get(f"/v1/threads/{thread}"))["branches"]
    assert (main["runs"], fork["runs"]) == (1, 1)
    states = (await platform.get(f"/v1/threads/{thread}/states", params={"branch": fork["id"]}))["states"]
    assert [state["t"] for state in states[:4]] == [
        "UserMessageState",
        "AssistantMessageState",
        "WaitingState",
        "UserMessageState",
    ]


async def test_second_answer_to_a_question_is_a_branch_while_the_run_of_the_first_goes_on(
    platform: ChatPlatform,
) -> None:
    platform.script.supervisor(QUESTION, decision(reply="Fine."), decision(reply="Not so fine."))
    async with platform_client(platform) as client:
        dialogue = ChatDialogue(client)
        asked = await dialogue.say("Is the disk fine?")
        other = ChatDialogue(client, dialogue.messages)
        platform.script.held = True
        first = asyncio.get_running_loop().create_task(dialogue.say("the first"))
        await platform.model.received(2)
        platform.script.held = False

        second = await other.say("the second")
        third = await other.say("thanks")
        platform.model.release("2")
        answered = await first

    assert text_of(answered) == "Fine."
    assert text_of(second) == "Not so fine."
    thread = extension_of(asked)["thread_id"]
    assert {extension_of(one)["thread_id"] for one in (second, third)} == {thread}
    main, fork = (await platform.get(f"/v1/threads/{thread}"))["branches"]
    assert (main["runs"], fork["runs"]) == (1, 2)
    states = (await platform.get(f"/v1/threads/{thread}/states", params={"branch": fork["id"]}))["states"]
    assert [state["t"] for state in states[:4]] == [
        "UserMessageState",
        "AssistantMessageState",
        "WaitingState",
        "UserMessageState",
    ]


async def test_answers_to_a_question_at_the_same_time_are_branches(platform: ChatPlatform) -> None:
    platform.script.supervisor(QUESTION, decision(reply="Fine."))
    async with platform_client(platform) as client:
        dialogue = ChatDialogue(client)
        asked = await dialogue.say("Is the disk fine?")
        clients = [ChatDialogue(client, dialogue.messages) for _ in range(3)]

        await asyncio.gather(*(one.say(f"the {number}") for number, one in enumerate(clients)))

    branches = (await platform.get(f"/v1/threads/{extension_of(asked)['thread_id']}"))["branches"]
    assert [branch["runs"] for branch in branches] == [1, 1, 1]


async def test_answer_to_an_earlier_question_is_a_branch_while_the_run_waits_for_an_approval(
    platform: ChatPlatform,
) -> None:
    work = decision(task("t1", AGENT))
    platform.script.run(
        QUESTION, work, decision(reply="Fine."), t1=calls(("charge", {"what": "a"})), qa=Answer("Done.")
    )
    async with platform_client(platform) as client:
        dialogue = ChatDialogue(client)
        await dialogue.say("Is the disk fine?")
        again = ChatDialogue(client, dialogue.messages)
        asked = await dialogue.say("the first")

        branch = await again.say("the second")
        approved = await dialogue.say(f"approve {code_in(text_of(asked))}")

    assert text_of(branch) == "Fine."
    assert extension_of(branch)["thread_id"] == extension_of(asked)["thread_id"]
    assert extension_of(approved)["run_id"] == extension_of(asked)["run_id"]
    assert platform.effects.done() == ["charge a"]


async def test_code_is_masked_in_the_messages_that_another_thread_begins_with(platform: ChatPlatform) -> None:
    charging(platform)
    async with platform_client(platform) as client:
        dialogue = ChatDialogue(client)
        code = code_in(text_of(await dialogue.say("Charge it.")))

        elsewhere = await ChatDialogue(client, dialogue.messages, user="other").say("What is this?")

    thread = extension_of(elsewhere)["thread_id"]
    states = (await platform.get(f"/v1/threads/{thread}/states"))["states"]
    assert "`approve ***`" in states[1]["data"]["content"]
    assert code not in json.dumps(states)
    assert code not in str(platform.model.requests)


async def test_progress_before_a_decision_is_not_told_again_after_it(platform: ChatPlatform) -> None:
    charging(platform)
    async with platform_client(platform) as client:
        dialogue = ChatDialogue(client)
        asked = await dialogue.say("Charge it.")

        approval: Any = {"role": "user", "content": f"approve {code_in(text_of(asked))}"}
        stream = await client.chat.completions.create(
            model="starling", messages=[*dialogue.messages, approval], stream=True
        )
        parts = [chunk.choices[0].delta async for chunk in stream]

    told = "".join((part.model_extra or {}).get("reasoning_content") or "" for part in parts)
    assert "t1 APPROVED" in told
    assert "works on t1" not in told


async def test_decision_on_one_of_two_calls_is_answered_by_the_other_call_each_time(platform: ChatPlatform) -> None:
    both = calls(("charge", {"what": "a"}), ("charge", {"what": "b"}))
    platform.script.run(decision(task("t1", AGENT)), t1=[both, Answer("Charged.")], qa=Answer("Charged [1]."))
    async with asyncio.timeout(60), platform_client(platform) as client:
        dialogue = ChatDialogue(client)
        text = text_of(await dialogue.say("Charge both."))
        first, second = codes_in(text)
        message: Any = {"role": "user", "content": f"approve {first}"}
        again = [*dialogue.messages, message]

        asked = await dialogue.say(f"approve {first}")
        done = platform.effects.done()
        whole = await client.chat.completions.create(model="starling", messages=again)
        stream = await client.chat.completions.create(model="starling", messages=again, stream=True)
        streamed = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
        previous = f"resp_{extension_of(asked)['run_id'].replace('-', '')}"
        response = await client.responses.create(
            model="starling", input=f"approve {first}", previous_response_id=previous
        )
        ended = await dialogue.say(f"approve {second}")

    assert codes_in(text_of(asked)) == [second]
    assert text_of(asked) == text_of(whole) == streamed == response.output_text
    assert done == [f"charge {re.findall(r'"what": "(.)"', text)[0]}"]
    assert extension_of(ended)["status"] == "succeeded"
    assert sorted(platform.effects.done()) == ["charge a", "charge b"]


async def test_run_whose_budget_is_refused_is_cut_off(database_url: str, tmp_path: Path) -> None:
    async with chat_platform(database_url, tmp_path, run_tokens=10) as platform:
        charging(platform)
        async with platform_client(platform) as client:
            dialogue = ChatDialogue(client)
            asked = await dialogue.say("Charge it.")
            refused = await dialogue.say(f"reject {code_in(text_of(asked))}")
            response = await client.responses.retrieve(f"resp_{extension_of(asked)['run_id'].replace('-', '')}")

    assert refused.choices[0].finish_reason == "length"
    assert extension_of(refused)["status"] == "budget_exhausted"
    assert response.status == "incomplete"
    assert response.incomplete_details
    assert response.incomplete_details.reason == "max_output_tokens"
