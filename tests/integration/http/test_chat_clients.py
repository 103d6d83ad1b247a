"""Clients beside OpenAI's own: LangChain, and requests as Open WebUI sends them."""

import json
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from tests.integration.http.conftest import LiveApi
from tests.support.local_access import AS_ADMIN, TOKEN

pytestmark = pytest.mark.asyncio(loop_scope="module")

OPEN_WEBUI = Path(__file__).parents[2] / "data" / "openai_clients" / "open_webui.json"
QUESTION = "How full is this disk?"


def langchain(api: LiveApi, **options: Any) -> ChatOpenAI:
    return ChatOpenAI(base_url=f"{api.url}/v1", api_key=SecretStr(TOKEN), model="starling", max_retries=0, **options)


@pytest.mark.parametrize("use_responses_api", [False, True])
async def test_langchain_answers_streams_and_goes_on(api: LiveApi, use_responses_api: bool) -> None:
    model = langchain(api, use_responses_api=use_responses_api, temperature=0)
    messages: list[BaseMessage] = [SystemMessage("Be brief."), HumanMessage("hello")]

    first = await model.ainvoke(messages)
    messages += [AIMessage(first.text), HumanMessage(QUESTION)]
    pieces = [piece async for piece in model.astream(messages)]

    assert first.text
    assert "[1]" in "".join(piece.text for piece in pieces)
    [latest, *_] = (await api.get("/v1/threads"))["threads"]
    assert [branch["runs"] for branch in latest["branches"]] == [2]


async def replayed(api: LiveApi, request: dict[str, Any], answers: list[str]) -> str:
    """Send a recorded request, with the answers so far in place of those that were recorded; return its text."""
    texts = iter(answers)
    messages = [
        message | {"content": next(texts)} if message["role"] == "assistant" else message
        for message in request["body"]["messages"]
    ]
    body = request["body"] | {"messages": messages}
    async with api.client.post("/v1/chat/completions", json=body, headers={**AS_ADMIN, **request["headers"]}) as found:
        assert found.status == 200, await found.text()
        if not body["stream"]:
            return (await found.json())["choices"][0]["message"]["content"]
        assert found.content_type == "text/event-stream"
        lines = [line.decode().removeprefix("data: ").strip() async for line in found.content if line.strip()]
    assert lines.pop() == "[DONE]"
    choices = [choice for line in lines if not line.startswith(":") for choice in json.loads(line)["choices"]]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


async def test_conversation_of_open_webui_is_one_thread(api: LiveApi) -> None:
    conversation: list[dict[str, Any]] = json.loads(OPEN_WEBUI.read_text())["requests"]
    answers: list[str] = []

    for request in conversation:
        text = await replayed(api, request, answers)
        assert text
        if not request["is_task"]:
            answers.append(text)

    threads = (await api.get("/v1/threads", params={"limit": 10}))["threads"]
    dialogues = [thread for thread in threads if sum(branch["runs"] for branch in thread["branches"]) == 3]
    assert len(dialogues) == 1
