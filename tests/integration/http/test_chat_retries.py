"""Requests that clients repeat, and clients that disconnect."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest

from starling.app.openai.answers import ChatAnswer
from starling.app.openai.chat_runs import ChatRuns
from starling.app.openai.requests import ChatCompletionRequest, ChatRequest, Sending
from starling.core.principal import HOST_ADMIN
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.runs.acceptance import IdempotencyKey
from tests.integration.http.test_chat_decisions import QUESTION, code_in
from tests.support.chat_platform import (
    ChatDialogue,
    ChatPlatform,
    chat_platform,
    extension_of,
    platform_client,
    text_of,
)
from tests.support.effect_recorder import AGENT
from tests.support.local_access import AS_ADMIN, TOKEN
from tests.support.model_script import Answer
from tests.support.openai_clients import openai_client
from tests.support.platform import calls, decision, task
from tests.support.tcp_proxy import Moment, TcpProxy

HELLO: list[Any] = [{"role": "user", "content": "hello"}]
ACTOR = Actor.local("test")
RETRIED = {"x-stainless-retry-count": "1"}


@pytest.fixture
async def platform(database_url: str, tmp_path: Path) -> AsyncGenerator[ChatPlatform]:
    async with chat_platform(database_url, tmp_path) as platform:
        yield platform


@asynccontextmanager
async def proxied_client(platform: ChatPlatform) -> AsyncGenerator[tuple[TcpProxy, openai.AsyncOpenAI]]:
    """Give a proxy before the API, and a client of it that repeats requests twice, as OpenAI's does by default."""
    proxy = TcpProxy(platform.port)
    await proxy.start()
    try:
        async with openai_client(f"http://127.0.0.1:{proxy.port}", TOKEN, max_retries=2) as client:
            yield proxy, client
    finally:
        await proxy.stop()


@pytest.mark.parametrize("moment", ["during", "after"])
@pytest.mark.parametrize("times", [1, 2])
async def test_repeated_request_joins_the_run_whose_answer_was_lost(
    platform: ChatPlatform, moment: Moment, times: int
) -> None:
    platform.script.supervisor(decision(reply="Hello."))
    async with proxied_client(platform) as (proxy, client):
        proxy.cut(moment, b"POST /v1/chat/completions", times=times)

        answer = await client.chat.completions.create(model="starling", messages=HELLO)

    assert proxy.cuts == times
    assert text_of(answer) == "Hello."
    assert await platform.run_ids() == [extension_of(answer)["run_id"]]


@pytest.mark.parametrize("moment", ["during", "after"])
async def test_repeated_answers_to_a_question_and_an_approval_join_the_run_that_asked(
    platform: ChatPlatform, moment: Moment
) -> None:
    charge = calls(("charge", {"what": "a"}))
    platform.script.run(QUESTION, decision(task("t1", AGENT)), t1=[charge, Answer("Charged.")], qa=Answer("Done [1]."))
    async with proxied_client(platform) as (proxy, client):
        dialogue = ChatDialogue(client)
        await dialogue.say("Is the disk fine?")
        proxy.cut(moment, b"POST /v1/chat/completions")
        asked = await dialogue.say("the first")
        proxy.cut(moment, b"POST /v1/chat/completions")

        approved = await dialogue.say(f"approve {code_in(text_of(asked))}")

    thread, run_id = extension_of(approved)["thread_id"], extension_of(approved)["run_id"]
    assert proxy.cuts == 2
    assert extension_of(approved)["status"] == "succeeded"
    assert platform.effects.done() == ["charge a"]
    assert await platform.run_ids() == [run_id]
    assert [branch["id"] for branch in (await platform.get(f"/v1/threads/{thread}"))["branches"]] == ["main"]


async def test_repeated_stream_and_response_join_their_runs(platform: ChatPlatform) -> None:
    platform.script.supervisor(decision(reply="Hello."))
    async with proxied_client(platform) as (proxy, client):
        proxy.cut("after", b"POST /v1/chat/completions")
        stream = await client.chat.completions.create(model="starling", messages=HELLO, stream=True)
        texts = [chunk.choices[0].delta.content or "" async for chunk in stream]
        proxy.cut("after", b"POST /v1/responses")
        response = await client.responses.create(model="starling", input="hello")

    assert "".join(texts) == response.output_text == "Hello."
    assert proxy.cuts == 2
    assert len(await platform.run_ids()) == 2


async def test_idempotency_key_leads_to_the_same_run_and_only_for_an_equal_body(platform: ChatPlatform) -> None:
    platform.script.supervisor(decision(reply="Hello."))
    key = {"Idempotency-Key": "order-4711"}
    async with platform_client(platform) as client:
        first = await client.chat.completions.create(model="starling", messages=HELLO, extra_headers=key)
        again = await client.chat.completions.create(model="starling", messages=HELLO, extra_headers=key)
        with pytest.raises(openai.BadRequestError) as reused:
            await client.chat.completions.create(
                model="starling", messages=[{"role": "user", "content": "other"}], extra_headers=key
            )

    assert extension_of(first)["run_id"] == extension_of(again)["run_id"]
    assert reused.value.code == "idempotency_key_reused"


async def test_response_in_the_background_goes_on_when_its_client_disconnects(platform: ChatPlatform) -> None:
    platform.script.held = True
    platform.script.supervisor(decision(reply="Hello."))

    await disconnect_from(platform, "/v1/responses", {"stream": True, "background": True})
    platform.model.release("1")

    [run_id] = await platform.run_ids()
    assert (await platform.ended(run_id))["status"] == "succeeded"


async def test_request_that_is_repeated_after_its_run_was_cancelled_begins_again(platform: ChatPlatform) -> None:
    platform.script.supervisor(decision(reply="Hello."))
    platform.script.held = True
    await disconnect_from(platform, "/v1/chat/completions", {})
    [run_id] = await platform.run_ids()
    await platform.ended(run_id)
    platform.script.held = False

    body = body_of("/v1/chat/completions", {})
    answer = await platform.post("/v1/chat/completions", json=body, headers=RETRIED)

    assert answer["choices"][0]["message"]["content"] == "Hello."
    assert answer["starling"]["run_id"] != run_id


async def test_disconnect_does_not_cancel_a_run_that_an_earlier_request_waits_for(platform: ChatPlatform) -> None:
    platform.script.held = True
    platform.script.supervisor(decision(reply="Hello."))
    chats = quick_chats(platform)
    first = await chats.begin(HOST_ADMIN, ACTOR, asked(HELLO))
    following = asyncio.get_running_loop().create_task(chats.answer(HOST_ADMIN, first))
    second = await chats.begin(HOST_ADMIN, ACTOR, asked(HELLO, retried=True))
    await platform.model.received(1)

    await chats.cancel_unless_joined(second)
    platform.model.release("1")

    assert second.key == first.key
    assert (await following).text == "Hello."


async def test_run_whose_question_was_read_by_a_client_that_disconnects_can_be_answered(platform: ChatPlatform) -> None:
    platform.script.supervisor(decision(question="Which disk?", options=["a", "b"]), decision(reply="Fine."))
    chats = quick_chats(platform)
    turn = await chats.begin(HOST_ADMIN, ACTOR, asked(HELLO))
    updates = chats.follow(HOST_ADMIN, turn)
    question = await anext(updates)
    await updates.aclose()
    assert isinstance(question, ChatAnswer)

    await chats.cancel_unless_joined(turn)
    messages = [*HELLO, {"role": "assistant", "content": question.text}, {"role": "user", "content": "a"}]
    answered = await chats.begin(HOST_ADMIN, ACTOR, asked(messages))

    assert answered.key == turn.key
    assert (await chats.answer(HOST_ADMIN, answered)).text == "Fine."


async def test_response_that_a_worker_executes_is_cancelled(platform: ChatPlatform) -> None:
    platform.script.held = True
    platform.script.supervisor(decision(reply="Hello."))
    async with platform_client(platform) as client:
        begun = await client.responses.create(model="starling", input="hello", background=True)
        await platform.model.received(1)
        going_on = await client.responses.retrieve(begun.id)
        cancelled = await client.responses.cancel(begun.id)

    assert going_on.status == "in_progress"
    assert cancelled.status == "cancelled"


async def test_failed_run_is_a_failed_response_with_its_text(platform: ChatPlatform) -> None:
    platform.script.supervisor(Answer(status=400, body='{"error": {"message": "no"}}'))
    async with platform_client(platform) as client:
        response = await client.responses.create(model="starling", input="hello")
        stream = await client.responses.create(model="starling", input="hello", stream=True)
        kinds = [event.type async for event in stream]
        completion = await client.chat.completions.create(model="starling", messages=HELLO)

    assert response.status == "failed"
    assert response.error
    assert response.output_text == response.error.message == text_of(completion)
    assert kinds[-1] == "response.failed"
    assert extension_of(completion)["status"] == "failed"


def body_of(path: str, more: dict[str, Any]) -> dict[str, Any]:
    given = {"input": "hello"} if path.endswith("responses") else {"messages": HELLO}
    return {"model": "starling", **given, **more}


def quick_chats(platform: ChatPlatform) -> ChatRuns:
    """Return the service of the platform, which waits for repeated requests for a shorter time."""
    return replace(platform.services.chats, retry_seconds=1.5)


def asked(messages: list[Any], *, retried: bool = False) -> ChatRequest:
    key = IdempotencyKey(f"chat {len(messages)}", "", replaces=not retried)
    given = {"model": "starling", "messages": messages}
    return ChatCompletionRequest.model_validate(given).asked(Sending(key, None, retried=retried))


async def disconnect_from(platform: ChatPlatform, path: str, more: dict[str, Any]) -> None:
    """Send a request, and close the connection once the model is asked."""

    async def ask() -> None:
        async with (
            aiohttp.ClientSession(platform.url, headers=AS_ADMIN) as session,
            session.post(path, json=body_of(path, more)) as response,
        ):
            await response.read()

    asking = asyncio.get_running_loop().create_task(ask())
    await platform.model.received(1)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
