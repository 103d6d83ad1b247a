"""Conversations of clients that send all messages each time: where they go on, and where they branch off."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from openai import AsyncOpenAI, omit
from openai.types.chat import ChatCompletion

from starling.core.ids import new_id
from starling.core.principal import Scope
from tests.integration.http.conftest import LiveApi
from tests.support.openai_clients import openai_client

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def ask(
    client: AsyncOpenAI,
    messages: Sequence[Any],
    *,
    thread: str = "",
    user: str = "",
    metadata: dict[str, str] | None = None,
) -> ChatCompletion:
    return await client.chat.completions.create(
        model="starling",
        messages=list(messages),
        user=user or omit,
        metadata=metadata or omit,
        extra_headers={"X-Thread-Id": thread} if thread else {},
    )


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def said(completion: ChatCompletion) -> dict[str, str]:
    return {"role": "assistant", "content": completion.choices[0].message.content or ""}


def thread_of(completion: ChatCompletion) -> str:
    return (completion.model_extra or {})["starling"]["thread_id"]


def run_of(completion: ChatCompletion) -> str:
    return (completion.model_extra or {})["starling"]["run_id"]


async def texts(api: LiveApi, thread: str, branch: str = "main") -> list[str]:
    """Return what was said on a branch."""
    page = await api.get(f"/v1/threads/{thread}/states", params={"branch": branch, "limit": 200})
    spoken = {"UserMessageState": "text", "AssistantMessageState": "content"}
    return [state["data"][spoken[state["t"]]] for state in page["states"] if state["t"] in spoken]


async def test_next_message_goes_on_in_the_thread_of_the_answer_before(api: LiveApi) -> None:
    async with openai_client(api.url) as client:
        system = {"role": "system", "content": "Be brief."}
        first = await ask(client, [system, user("hello")])
        second = await ask(client, [system, user("hello"), said(first), user("How full is this disk?")])
        later = {"role": "system", "content": "It is noon."}
        dialogue = [later, user("hello"), said(first), user("How full is this disk?"), said(second)]
        third = await ask(client, [*dialogue, user("thanks")])

    assert thread_of(first) == thread_of(second) == thread_of(third)
    found = await api.get(f"/v1/threads/{thread_of(first)}")
    assert [branch["id"] for branch in found["branches"]] == ["main"]
    assert found["branches"][0]["runs"] == 3


async def test_what_clients_change_of_messages_that_they_send_back_does_not_matter(api: LiveApi) -> None:
    async with openai_client(api.url) as client:
        first = await ask(client, [user("hello")])
        text = said(first)["content"]
        changed = [
            {"role": "user", "content": [{"type": "text", "text": " hello\r\n"}]},
            {
                "role": "assistant",
                "content": f'<details type="reasoning" done="true">\nPlan: x\n</details>\n{text}\n',
            },
            user("hello again"),
        ]
        second = await ask(client, changed)

    assert thread_of(second) == thread_of(first)


async def test_edited_and_regenerated_turns_are_branches(api: LiveApi) -> None:
    async with openai_client(api.url) as client:
        first = await ask(client, [user("hello")])
        begun = [user("hello"), said(first)]
        second = await ask(client, [*begun, user("How full is this disk?")])
        regenerated = await ask(client, [*begun, user("How full is this disk?")])
        edited = await ask(client, [*begun, user("How much memory is free?")])
        goes_on = await ask(client, [*begun, user("How much memory is free?"), said(edited), user("thanks")])

    threads = {thread_of(one) for one in (first, second, regenerated, edited, goes_on)}
    assert len(threads) == 1
    thread = threads.pop()
    main, *forks = (await api.get(f"/v1/threads/{thread}"))["branches"]
    assert main["runs"] == 2
    assert sorted(fork["runs"] for fork in forks) == [1, 2]
    last = next(fork["id"] for fork in forks if fork["runs"] == 2)
    assert await texts(api, thread, last) == [
        "hello",
        said(first)["content"],
        "How much memory is free?",
        said(edited)["content"],
        "thanks",
        said(goes_on)["content"],
    ]


async def test_unknown_conversation_begins_a_thread_with_its_messages(api: LiveApi) -> None:
    dialogue = [
        {"role": "system", "content": "Never imported."},
        user("My dog is called Rex."),
        {"role": "assistant", "content": "Noted."},
        user("hello"),
    ]
    async with openai_client(api.url) as client:
        answer = await ask(client, dialogue)
        other_user = await ask(client, [*dialogue, said(answer), user("thanks")], user="somebody else")
        same = await ask(client, [*dialogue, said(answer), user("thanks")])

    assert await texts(api, thread_of(answer)) == [
        *("My dog is called Rex.", "Noted.", "hello", said(answer)["content"], "thanks", said(same)["content"])
    ]
    assert thread_of(other_user) != thread_of(answer)
    assert (await api.get(f"/v1/runs/{run_of(answer)}"))["config"]["instructions"] == "Never imported."


async def test_named_thread_takes_the_messages_after_the_last_answer(api: LiveApi) -> None:
    thread = f"named-{new_id()}"
    earlier = [user("My dog is called Rex."), {"role": "assistant", "content": "Noted."}]
    async with openai_client(api.url) as client:
        first = await ask(client, [*earlier, user("hello")], thread=thread)
        second = await ask(client, [*earlier, user("hello"), user("again")], metadata={"thread_id": thread})

    assert thread_of(first) == thread_of(second) == thread
    assert await texts(api, thread) == [
        *("My dog is called Rex.", "Noted.", "hello", said(first)["content"]),
        *("hello\n\nagain", said(second)["content"]),
    ]


async def test_two_clients_on_one_thread_are_answered_in_turn(api: LiveApi) -> None:
    thread = f"shared-{new_id()}"
    async with openai_client(api.url) as one, openai_client(api.url) as other:
        answers = await asyncio.gather(
            *(
                ask(client, [user(f"How full is this disk? ({number})")], thread=thread)
                for number, client in enumerate((one, other, one, other))
            )
        )

    assert {thread_of(answer) for answer in answers} == {thread}
    assert (await api.get(f"/v1/threads/{thread}"))["branches"][0]["runs"] == 4


async def test_two_clients_that_go_on_at_the_same_time_get_a_branch_each(api: LiveApi) -> None:
    async with openai_client(api.url) as client:
        first = await ask(client, [user("hello")])
        begun = [user("hello"), said(first)]
        await asyncio.gather(
            *(ask(client, [*begun, user(f"How full is this disk? ({number})")]) for number in range(3))
        )

    branches = (await api.get(f"/v1/threads/{thread_of(first)}"))["branches"]
    assert [branch["runs"] for branch in branches] == [2, 1, 1]


async def test_conversation_of_another_key_begins_a_thread_of_its_own(api: LiveApi) -> None:
    headers = await api.key(Scope.RUN)
    async with (
        openai_client(api.url) as client,
        openai_client(api.url, headers["Authorization"].removeprefix("Bearer ")) as other,
    ):
        first = await ask(client, [user("hello")])
        second = await ask(other, [user("hello"), said(first), user("thanks")])

    assert thread_of(second) != thread_of(first)
