"""OpenAI's chat API by OpenAI's own client: answers, streams, models and errors."""

import asyncio
import io
from typing import Any

import openai
import pytest

from starling.core.principal import Scope
from tests.integration.http.conftest import LiveApi
from tests.support.openai_clients import blocking_openai_client, openai_client

pytestmark = pytest.mark.asyncio(loop_scope="module")

QUESTION = "How full is this disk?"


async def test_synchronous_client_gets_the_same(api: LiveApi) -> None:
    def ask() -> tuple[str | None, str]:
        with blocking_openai_client(api.url) as client:
            whole = client.chat.completions.create(model="starling", messages=[{"role": "user", "content": "hello"}])
            stream = client.chat.completions.create(
                model="starling", messages=[{"role": "user", "content": "hello"}], stream=True
            )
            return whole.choices[0].message.content, "".join(
                chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices
            )

    whole, streamed = await asyncio.to_thread(ask)

    assert whole == streamed != ""


async def test_conversation_of_2000_messages_in_parts_is_answered(api: LiveApi) -> None:
    messages: list[Any] = [
        {"role": role, "content": [{"type": "text", "text": f"{role} {number} {'x' * 800}"}]}
        for number in range(1_000)
        for role in ("user", "assistant")
    ]
    messages.append({"role": "user", "content": "hello"})

    async with openai_client(api.url) as client:
        answer = await client.chat.completions.create(model="starling", messages=messages)

    assert answer.choices[0].message.content


async def test_body_with_too_much_in_it_is_refused_with_its_limit(api: LiveApi) -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "x"}]}] * 3_400

    refused = await api.post("/v1/chat/completions", 413, json={"model": "starling", "messages": messages})

    assert refused["error"]["message"].endswith(". Send no more than 20,000 keys and items.")


async def test_every_error_has_the_form_of_openai(api: LiveApi) -> None:
    headers = await api.key(Scope.ADMIN)
    async with (
        openai_client(api.url, "sk-wrong") as wrong,
        openai_client(api.url, headers["Authorization"].removeprefix("Bearer ")) as admin,
    ):
        with pytest.raises(openai.AuthenticationError) as unknown:
            await wrong.models.list()
        with pytest.raises(openai.PermissionDeniedError) as lacking:
            await admin.models.list()
    not_json = await api.post("/v1/chat/completions", 400, data=b"{", headers={"content-type": "application/json"})
    too_large = await api.post("/v1/chat/completions", 413, data=io.BytesIO(b"x" * 5_000_000))
    wrong_method = await api.get("/v1/chat/completions", 405)

    assert unknown.value.code == "invalid_api_key"
    assert lacking.value.type == "permission_error"
    for body in (unknown.value.body, lacking.value.body, *(it["error"] for it in (not_json, too_large, wrong_method))):
        assert isinstance(body, dict)
        assert {"message", "type", "param", "code"} == body.keys()
